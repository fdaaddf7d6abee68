"""The segments of one stream that were received and not yet read.

Owns the tracker, which orders the segments and bounds their size. Requests put parts in and never wait; a
program takes segments out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from antiphon.client.mailbox import Mailbox
from antiphon.client.streaming.segment_tracker import SegmentTracker
from antiphon.errors import AntiphonError, BadAnswer, TimedOut
from antiphon.model.inbox import InboxNews
from antiphon.model.outcome import Result
from antiphon.model.request import CallTool, Request
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["SegmentQueue"]

_SILENCE_SLACK = 1.05
"""How much longer than needed the silence limit is set, so that not every segment has to move it."""


class SegmentQueue:
    """The sink of one stream. It takes the segments numbered above `after`, of at most `max_bytes` in all."""

    def __init__(self, max_bytes: int, after: int = 0) -> None:
        self.tracker = SegmentTracker(max_bytes, after)
        self.parts = 0
        """The number of messages that brought something."""
        self.task: TaskStatus | None = None
        self.has_task = asyncio.Event()
        self.on_failure: Callable[[AntiphonError], None] = lambda error: None
        """Called with an error after which reading on is useless."""
        self._ready: Mailbox[Segment] = Mailbox()
        self._silence_limit: asyncio.Timeout | None = None
        self._max_silence = 0.0

    # Putting in

    def stops_with(self, request: Request) -> bool:
        """Return whether the server should stop with this request; a task goes on without its call."""
        return not (isinstance(request, CallTool) and self.has_task.is_set())

    def take(self, part: StreamPart | InboxNews) -> None:
        """Receive a part while a request goes on."""
        if isinstance(part, InboxNews):  # for another request
            return
        try:
            self.add(part)
        except BadAnswer as error:
            self.fail(error)

    def add(self, part: StreamPart) -> None:
        """Receive a part; raises `BadAnswer`."""
        new = self.tracker.take(part)
        self.parts += 1
        if self.tracker.task_id is not None and not self.has_task.is_set():
            self.set_task(part.task or TaskStatus(self.tracker.task_id, "working"))
        self._put(new)
        self._extend_silence()

    def set_task(self, task: TaskStatus) -> None:
        """Record the task of the segments; raises `BadAnswer` if they belonged to another task before."""
        self.tracker.set_task(task.id)
        self.task = task
        self.has_task.set()

    def settle(self, result: Result) -> None:
        """Take missing segments from the whole result; raises `BadAnswer`.

        The content of an error is not taken: it may be a message and not a segment.
        """
        if not result.is_error:
            self._put(self.tracker.settle(result.content))

    def fail(self, error: AntiphonError) -> None:
        """Report an error after which reading on is useless."""
        self.on_failure(error)

    def end(self) -> None:
        """Record that no more segments will come."""
        self._ready.close()

    @asynccontextmanager
    async def silence(self, seconds: float) -> AsyncIterator[None]:
        """Raise `TimedOut` if no part comes for so many seconds. A stream of a task may be silent."""
        self._max_silence = seconds
        limit = self._silence_limit = asyncio.timeout(None if seconds == float("inf") else seconds)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(
                f"The server has sent nothing for {seconds:g} s. Give it more time with timeout=."
            ) from None
        finally:
            self._silence_limit = None

    # Taking out

    async def next(self) -> Segment | None:
        """Return the next segment; `None` if all are read and the stream has ended."""
        return await self._ready.next()

    def _put(self, segments: list[Segment]) -> None:
        if segments:
            self._ready.put(segments)

    def _extend_silence(self) -> None:
        limit = self._silence_limit
        if limit is None or self._max_silence == float("inf"):
            return
        now = asyncio.get_running_loop().time()
        due = limit.when()
        if due is None or due - now > self._max_silence or limit.expired():
            return
        limit.reschedule(None if self.has_task.is_set() else now + self._max_silence * _SILENCE_SLACK)
