"""What has come of one stream and was not read yet: requests put it in at one end, a program takes it out.

It owns the tracker. Putting in never waits; what nobody reads is bounded by what the tracker takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from antiphon.client.mailbox import Mailbox
from antiphon.client.streaming.segment_tracker import SegmentTracker
from antiphon.errors import AntiphonError, BadAnswer, TimedOut
from antiphon.model.outcome import Result
from antiphon.model.request import CallTool, Request
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["SegmentQueue"]

_SLACK = 1.05


class SegmentQueue:
    """The sink of one stream: `limit` bytes of it are taken, from the number after `after` on."""

    def __init__(self, limit: int, after: int = 0) -> None:
        self.tracker = SegmentTracker(limit, after)
        self.parts = 0
        """How many messages have brought something."""
        self.task: TaskStatus | None = None
        self.has_task = asyncio.Event()
        self.broken: Callable[[AntiphonError], None] = lambda error: None
        """Called with what makes it useless to go on."""
        self._ready: Mailbox[Segment] = Mailbox()
        self._quiet: asyncio.Timeout | None = None
        self._silence = 0.0

    # Put in

    def ends_with(self, request: Request) -> bool:
        """Whether giving up a request is to stop what it started; a task goes on without its call."""
        return not (isinstance(request, CallTool) and self.has_task.is_set())

    def take(self, part: StreamPart) -> None:
        """Take what came while a request goes on."""
        try:
            self.add(part)
        except BadAnswer as error:
            self.fail(error)

    def add(self, part: StreamPart) -> None:
        """Take what came; raises `BadAnswer`."""
        new = self.tracker.take(part)
        self.parts += 1
        if self.tracker.task_id is not None and not self.has_task.is_set():
            self.own(part.task or TaskStatus(self.tracker.task_id, "working"))
        self._hand_on(new)
        self._listen_on()

    def own(self, task: TaskStatus) -> None:
        """Note the task whose segments these are; raises `BadAnswer` if they were another's so far."""
        self.tracker.own(task.id)
        self.task = task
        self.has_task.set()

    def settle(self, result: Result) -> None:
        """Take what is missing out of the whole result; of one that failed, nothing: it is not for sure
        a segment. Raises `BadAnswer`."""
        if not result.is_error:
            self._hand_on(self.tracker.settle(result.content))

    def fail(self, error: AntiphonError) -> None:
        """It is useless to go on."""
        self.broken(error)

    def end(self) -> None:
        """Nothing more will come."""
        self._ready.close()

    @asynccontextmanager
    async def silence(self, seconds: float) -> AsyncIterator[None]:
        """Raise `TimedOut` where nothing comes for so long, unless there is a task, which may be silent."""
        self._silence = seconds
        quiet = self._quiet = asyncio.timeout(None if seconds == float("inf") else seconds)
        try:
            async with quiet:
                yield
        except TimeoutError:
            if not quiet.expired():
                raise
            raise TimedOut(
                f"The server has sent nothing for {seconds:g} s. Give it more time with timeout=."
            ) from None
        finally:
            self._quiet = None

    # Taken out

    async def next(self) -> Segment | None:
        """The next segment; `None` when all are read and it has ended."""
        return await self._ready.next()

    def _hand_on(self, segments: list[Segment]) -> None:
        if segments:
            self._ready.put(segments)

    def _listen_on(self) -> None:
        quiet = self._quiet
        if quiet is None or self._silence == float("inf"):
            return
        now = asyncio.get_running_loop().time()
        due = quiet.when()
        if due is None or due - now > self._silence or quiet.expired():
            return  # put off not long ago
        # A little longer than need be, so that not every segment has to put it off.
        quiet.reschedule(None if self.has_task.is_set() else now + self._silence * _SLACK)
