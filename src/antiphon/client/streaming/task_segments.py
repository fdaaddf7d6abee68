"""Reads the segments of a task until the task has ended, across broken connections.

Works in two ways at once, and the first that reaches the end wins: it requests the segments, each time after
the last number it has; and it follows the status of the task, whose result decides.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from antiphon.client.connection import Callback
from antiphon.client.streaming.segment_queue import SegmentQueue
from antiphon.client.tasks.following import STABLE_STREAM_SECONDS, poll_delay
from antiphon.client.tasks.redeeming import LATE_RESULT_SECONDS, Redemption, outcome
from antiphon.client.tasks.requests import TaskRequests, reconnecting
from antiphon.errors import (
    BadAnswer,
    InternalError,
    InvalidParams,
    RequestError,
    TaskLost,
    TimedOut,
    Unreachable,
)
from antiphon.model.outcome import Result
from antiphon.model.request import GetTask
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["Begun", "TaskSegments"]

Begun: TypeAlias = asyncio.Task[Any] | StreamPart | None
"""How the stream of a task has begun: with a request that goes on, with the response to one, or not yet."""

MAX_BREAKS = 5
"""How often in a row a stream of segments may break early; then the client only follows the status."""
GAP_SECONDS = 0.5
"""How long the client waits for a missing segment on the same stream."""
_MAX_GAP_RETRIES = 3


class TaskSegments:
    """One reader of the task whose id `segments` has. `answered` and `insist` are as in `Redemption`."""

    def __init__(
        self,
        tasks: TaskRequests,
        segments: SegmentQueue,
        known: TaskStatus | None,
        *,
        answered: set[str],
        insist: bool,
        limit: asyncio.Timeout,
        on_progress: Callback | None = None,
    ) -> None:
        assert segments.tracker.task_id is not None
        self.id = segments.tracker.task_id
        self._tasks = tasks
        self._segments = segments
        self._tracker = segments.tracker
        self._redemption = Redemption(
            tasks, self.id, known, answered=answered, insist=insist, on_progress=on_progress
        )
        self._redemption.limit = limit
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended, so that there is nothing to cancel."""
        return self._has_ended or self._redemption.has_ended

    async def result(self, begun: Begun = None) -> Result:
        """Return the result of the task, once all segments are in the queue.

        `begun` is the request that brings the first segments, or the response that brought them. Raises the
        error of the task, `TaskCancelled`, `TaskLost`, or `BadAnswer`.
        """
        try:
            if not self._tasks.connection.offers.streams:
                return await self._redemption.result()
            return await self._race(begun)
        except TaskLost:
            self._has_ended = True
            raise

    async def _race(self, begun: Begun) -> Result:
        following = asyncio.create_task(self._follow_status())
        reading = asyncio.create_task(self._read(begun))
        try:
            await asyncio.wait({following, reading}, return_when=asyncio.FIRST_COMPLETED)
            if following.done() and not reading.done() and not _has_all(following):
                await asyncio.wait({reading}, timeout=LATE_RESULT_SECONDS)
            if reading.done():
                result = reading.result()
                if result is not None:
                    return result
                if not following.done() and not self._tasks.answers_by_key:
                    following.cancel()
                    await asyncio.wait({following})
                    return await self._redemption.result()  # the server asks on the stream of that request
            ended = await following
            return ended if isinstance(ended, Result) else await self._redeem(ended)
        finally:
            for task in (following, reading):
                task.cancel()
            await asyncio.gather(following, reading, return_exceptions=True)

    async def _follow_status(self) -> Result | TaskStatus:
        """Return the result of the task, or its last status in versions whose status has no result."""
        return await (self._redemption.result() if self._tasks.answers_by_key else self._redemption.end())

    # Reading segments

    async def _read(self, begun: Begun) -> Result | None:
        """Request segments until the result comes; returns `None` if the server does not send all of them."""
        loop = asyncio.get_running_loop()
        backoff, breaks, tries = reconnecting(), 0, 0
        while True:
            last, parts, wait, opened = self._tracker.last, self._segments.parts, None, loop.time()
            try:
                response = begun if isinstance(begun, StreamPart) else await self._request(begun)
                breaks = 0
                if response is not None:
                    result = await self._conclude(response)
                    if result is not None:
                        return result
                    wait = self._poll_delay(response)
            except (Unreachable, InternalError) as error:
                # A pipe that is closed stays closed.
                is_lost = isinstance(error, Unreachable) and not self._tasks.connection.channel.has_streams
                if is_lost or self._has_ended:
                    raise
                is_stable = loop.time() - opened > STABLE_STREAM_SECONDS
                breaks = 0 if is_stable or self._segments.parts > parts else breaks + 1
                if breaks < MAX_BREAKS and not await self._is_task_known():
                    return None
            except RequestError:
                if self._has_ended:
                    raise
                return None  # the status shows whether the task exists
            begun = None
            if self._tracker.last > last:
                backoff.reset()
                tries = 0
            elif self._tracker.missing is not None:
                tries += 1
                if tries >= _MAX_GAP_RETRIES:
                    return None  # the whole result has the segment, if the server has it at all
            if breaks >= MAX_BREAKS:
                return None
            delay = backoff.next_delay()
            await asyncio.sleep(delay if wait is None else wait)

    async def _is_task_known(self) -> bool:
        """Return whether the server knows the task, once the server responds again after a lost connection.

        An outage may last longer than a few breaks, and says nothing about whether the server can stream.
        """
        try:
            await self._tasks.ask(GetTask(self.id))
        except (RequestError, TimedOut):
            return False
        return True

    async def _request(self, calling: asyncio.Task[Any] | None) -> Any:
        """Return the response to a request for segments; `None` if the stream skipped a segment."""
        request = calling or asyncio.create_task(
            self._tasks.segments(self.id, self._tracker.last, self._segments)
        )
        # Leaving the stream of a call may cancel the call, so that stream is read to its end.
        reads_to_end = calling is not None and self._tasks.connection.dialect.closing_cancels
        try:
            missing = None
            while not (await asyncio.wait({request}, timeout=None if reads_to_end else GAP_SECONDS))[0]:
                if missing is not None and self._tracker.missing == missing:
                    return None
                missing = self._tracker.missing
            return request.result()
        finally:
            request.cancel()
            await asyncio.wait({request})

    def _poll_delay(self, response: TaskStatus | StreamPart) -> float | None:
        """Return the delay before the next request to a server that responds at once with what there is."""
        if self._tracker.missing is not None:
            return None
        known = response if isinstance(response, TaskStatus) else response.task or self._segments.task
        assert known is not None
        return poll_delay(known)

    # Ending

    async def _conclude(self, last: Any) -> Result | None:
        """Return the result in the last response; `None` if the task goes on, or a segment is missing."""
        if isinstance(last, Result):
            self._has_ended = True
            return last
        if isinstance(last, TaskStatus):
            if last.id != self.id:
                raise BadAnswer(
                    f"The client asked for the task {self.id}, and the server sent the task {last.id}."
                )
            self._has_ended = last.has_ended
            await self._redemption.report(last.progress)
            return outcome(last) if last.has_ended else None
        assert isinstance(last, StreamPart)
        self._segments.add(last)
        if last.stopped is not None:
            self._tasks.expect_questions()
        if last.end is None or (self._tracker.missing is not None and not last.end.content):
            return None
        self._has_ended = True
        status = await self._tasks.get(self.id)
        await self._redemption.report(status.progress)
        if last.end.is_error or status.status in ("cancelled", "failed") or not self._tracker.is_whole:
            return await self._redeem(status)
        return self._tracker.merged(last.end)

    async def _redeem(self, status: TaskStatus) -> Result:
        """Return the result of a task, in versions with a request for it."""
        self._has_ended = True
        if status.status == "cancelled":
            return outcome(status)
        try:
            return await self._tasks.redeem(self.id)
        except InvalidParams:
            await self._tasks.get(self.id)  # raises TaskLost if the task has expired meanwhile
            raise


def _has_all(following: asyncio.Task[Result | TaskStatus]) -> bool:
    """Return whether the result has all segments; the content of an error may be something else."""
    if following.exception() is not None:
        return False
    ended = following.result()
    return isinstance(ended, Result) and not ended.is_error
