"""Follows the segments of a task until it has ended, across connections that break.

Two ways at once, and the first that comes to the end ends it: requests for the segments, one after the other,
each from the last number on; and the state of the task, on whose result the last word is.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from antiphon.client.streaming.segment_queue import SegmentQueue
from antiphon.client.tasks.following import pause
from antiphon.client.tasks.redeeming import LATE_RESULT_SECONDS, Redemption, outcome
from antiphon.client.tasks.requests import TaskRequests, reconnecting
from antiphon.errors import BadAnswer, InternalError, InvalidParams, RequestError, TaskLost, Unreachable
from antiphon.model.outcome import Result
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["Begun", "TaskSegments"]

Begun: TypeAlias = asyncio.Task[Any] | StreamPart | None
"""How the stream of a task has begun: with a request that goes on, with the answer to one, or not yet."""

_MAX_BREAKS = 5
"""How often a request for segments may bring nothing; after that, the result is waited for."""
_GAP_SECONDS = 0.5
"""Seconds in which a missing number may still come on the same stream."""
_MAX_GAP_RETRIES = 3


class TaskSegments:
    """One reader of one task, which the intake knows. `insist` as in `Redemption`."""

    def __init__(
        self,
        tasks: TaskRequests,
        intake: SegmentQueue,
        known: TaskStatus | None,
        *,
        asked: set[str],
        insist: bool,
        limit: asyncio.Timeout,
    ) -> None:
        assert intake.tracker.task_id is not None
        self.id = intake.tracker.task_id
        self._tasks = tasks
        self._intake = intake
        self._tracker = intake.tracker
        self._redeeming = Redemption(tasks, self.id, known, asked=asked, insist=insist)
        self._redeeming.limit = limit
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to stop."""
        return self._has_ended or self._redeeming.has_ended

    async def result(self, begun: Begun = None) -> Result:
        """What the task gives, all its segments taken in; `begun` is what brings, or brought, the first.

        Raises what the task failed with, `TaskCancelled`, `TaskLost`, or `BadAnswer`.
        """
        try:
            if not self._tasks.connection.offers.streams:
                return await self._redeeming.result()
            return await self._race(begun)
        except TaskLost:
            self._has_ended = True
            raise

    async def _race(self, begun: Begun) -> Result:
        looking = asyncio.create_task(self._look())
        reading = asyncio.create_task(self._read(begun))
        try:
            await asyncio.wait({looking, reading}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done() and not reading.done() and not _says_all(looking):
                await asyncio.wait({reading}, timeout=LATE_RESULT_SECONDS)
            if reading.done():
                result = reading.result()
                if result is not None:
                    return result
                if not looking.done() and not self._tasks.take_answers:
                    looking.cancel()
                    await asyncio.wait({looking})
                    return await self._redeeming.result()  # whoever waits there is asked
            ended = await looking
            return ended if isinstance(ended, Result) else await self._redeem(ended)
        finally:
            for task in (looking, reading):
                task.cancel()
            await asyncio.gather(looking, reading, return_exceptions=True)

    async def _look(self) -> Result | TaskStatus:
        """The end of the task: its result, on versions where that is told with the status."""
        return await (self._redeeming.result() if self._tasks.take_answers else self._redeeming.end())

    # The segments

    async def _read(self, begun: Begun) -> Result | None:
        """The result, all segments before it; `None` where the server does not bring them."""
        backoff, breaks, tries = reconnecting(), 0, 0
        while True:
            last, parts, wait = self._tracker.last, self._intake.parts, None
            try:
                answer = begun if isinstance(begun, StreamPart) else await self._follow(begun)
                breaks = 0
                if answer is not None:
                    result = await self._conclude(answer)
                    if result is not None:
                        return result
                    wait = self._poll_interval(answer)
            except (Unreachable, InternalError) as error:
                # A pipe that is closed stays closed.
                lost = isinstance(error, Unreachable) and not self._tasks.connection.channel.has_streams
                if lost or self._has_ended:
                    raise
                breaks = 0 if self._intake.parts > parts else breaks + 1
            except RequestError:
                if self._has_ended:
                    raise
                return None  # whether there is such a task is found out by looking
            begun = None
            if self._tracker.last > last:
                backoff.reset()
                tries = 0
            elif self._tracker.missing is not None:
                tries += 1
                if tries >= _MAX_GAP_RETRIES:
                    self._tracker.check()
            if breaks >= _MAX_BREAKS:
                return None
            delay = backoff.next_delay()
            await asyncio.sleep(delay if wait is None else wait)

    async def _follow(self, calling: asyncio.Task[Any] | None) -> Any:
        """How one request ended; `None` where one is missing that it will not bring any more."""
        request = calling or asyncio.create_task(
            self._tasks.segments(self.id, self._tracker.last, self._intake)
        )
        # Where leaving a call's stream stops the call, it has to be read to its end.
        waits = calling is not None and self._tasks.connection.dialect.closing_cancels
        try:
            missing = None
            while not (await asyncio.wait({request}, timeout=None if waits else _GAP_SECONDS))[0]:
                if missing is not None and self._tracker.missing == missing:
                    return None
                missing = self._tracker.missing
            return request.result()
        finally:
            request.cancel()
            await asyncio.wait({request})

    def _poll_interval(self, answer: TaskStatus | StreamPart) -> float | None:
        """How long to leave a server in peace that answers at once with what there is."""
        if self._tracker.missing is not None:
            return None
        known = answer if isinstance(answer, TaskStatus) else answer.task or self._intake.task
        assert known is not None
        return pause(known)

    # The end

    async def _conclude(self, last: Any) -> Result | None:
        """What the last response says; `None` where the task goes on, or a segment is missing."""
        if isinstance(last, Result):
            self._has_ended = True
            return last
        if isinstance(last, TaskStatus):
            if last.id != self.id:
                raise BadAnswer(f"The server was asked for the segments of {self.id}, and told of {last.id}.")
            self._has_ended = last.has_ended
            return outcome(last) if last.has_ended else None
        assert isinstance(last, StreamPart)
        self._intake.add(last)
        if last.end is None or (self._tracker.missing is not None and not last.end.content):
            return None
        self._has_ended = True
        status = await self._tasks.get(self.id)
        if last.end.is_error or status.status in ("cancelled", "failed") or not self._tracker.is_whole:
            return await self._redeem(status)
        return self._tracker.merged(last.end)

    async def _redeem(self, status: TaskStatus) -> Result:
        """What a task gave, on versions where that is asked for."""
        self._has_ended = True
        if status.status == "cancelled":
            return outcome(status)
        try:
            return await self._tasks.redeem(self.id)
        except InvalidParams:
            await self._tasks.get(self.id)  # it may be gone by now
            raise


def _says_all(looking: asyncio.Task[Result | TaskStatus]) -> bool:
    """Whether the end has in it what was not read yet; a failure does not tell segments from other words."""
    if looking.exception() is not None:
        return False
    ended = looking.result()
    return isinstance(ended, Result) and not ended.is_error
