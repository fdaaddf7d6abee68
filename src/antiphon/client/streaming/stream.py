"""What a program reads a stream through, and what drives the stream of a call.

A call begins as an answer, through as many rounds as it takes; where it becomes a task, the task is pursued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from antiphon.client.connection import Callback
from antiphon.client.streaming.segment_queue import SegmentQueue
from antiphon.client.streaming.task_segments import Begun, TaskSegments
from antiphon.client.tasks.redeeming import checked
from antiphon.client.tasks.requests import TaskRequests
from antiphon.client.tool_calls import ToolCalls
from antiphon.errors import AntiphonError, BadAnswer, ClientError, TimedOut
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["Stream", "StreamedCall"]

_FOREVER = float("inf")


class Stream:
    """What a tool emits, as it comes: open inside `async with`, and read with `async for`.

    Reading raises, after the last segment, what a call raises: `Failure` where the tool failed, unless that
    is not to be checked, the `RequestError` that it ended with, `TaskCancelled`, `TaskLost`, `TimedOut`,
    `Unreachable` or `BadAnswer`.
    """

    def __init__(
        self,
        intake: SegmentQueue,
        drive: Callable[[asyncio.Timeout], Awaitable[Result]],
        *,
        what: str,
        timeout: float | None,
        check: bool,
    ) -> None:
        self._intake = intake
        self._drive = drive
        self._what = what
        self._timeout = timeout
        self._check = check
        self._working: asyncio.Task[None] | None = None
        self._result: Result | None = None
        self._error: Exception | None = None

    @property
    def result(self) -> Result:
        """The whole result, all segments in it, when it has ended.

        Raises `ClientError` before, and what it ended with where there is no result.
        """
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ClientError(f"{self._what} has no result yet: read its segments to the end.")
        return self._result

    @property
    def task_id(self) -> str | None:
        """What to take it up with elsewhere; `None` where there is no task, or none is known yet."""
        return self._intake.tracker.task_id

    async def __aenter__(self) -> Self:
        if self._working is not None:
            raise ClientError("A stream is read once: make another.")
        self._intake.broken = self._break
        self._working = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._working is not None
        self._working.cancel()
        await asyncio.wait({self._working})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Segment:
        if self._working is None:
            raise ClientError("A stream is open inside `async with`.")
        segment = await self._intake.next()
        if segment is not None:
            return segment
        if self._error is not None:
            raise self._error
        if self._result is not None and self._check:
            checked(self._result, self._what)
        raise StopAsyncIteration

    @property
    def _has_ended(self) -> bool:
        return self._result is not None or self._error is not None

    def _break(self, error: AntiphonError) -> None:
        """What came cannot be true: stop, with this."""
        if not self._has_ended and self._working is not None:
            self._error = error
            self._working.cancel()

    async def _work(self) -> None:
        limit = asyncio.timeout(None if self._timeout == _FOREVER else self._timeout)
        try:
            async with limit:
                result = await self._drive(limit)
                self._intake.settle(result)
            self._result = result
        except TimeoutError as error:
            self._error = self._error or (self._late() if limit.expired() else error)
        except asyncio.CancelledError:
            self._error = self._error or ClientError(f"{self._what} was left before its end.")
        except Exception as error:
            self._error = self._error or error
        finally:
            self._intake.end()

    def _late(self) -> TimedOut:
        return TimedOut(
            f"{self._what} has not ended within {self._timeout:g} s. Give it more time with timeout=."
        )


class StreamedCall:
    """Drives one call to its end. Without somebody who reads it, the call is given up."""

    def __init__(
        self,
        calls: ToolCalls,
        tasks: TaskRequests,
        intake: SegmentQueue,
        request: CallTool,
        request_meta: RequestMeta,
        *,
        timeout: float | None,
        on_progress: Callback | None,
    ) -> None:
        self._calls = calls
        self._tasks = tasks
        self._intake = intake
        self._request = request
        self._request_meta = request_meta
        # Who says how long it may take in all does not mind silence.
        self._silence = tasks.connection.timeout if timeout is None else _FOREVER
        self._on_progress = on_progress
        self._pursuit: TaskSegments | None = None
        self._clock: _Clock

    async def drive(self, limit: asyncio.Timeout) -> Result:
        """The result; raises what ends it otherwise."""
        self._clock = _Clock(limit)
        request, self._request_meta = await self._calls.streaming(self._request, self._request_meta)
        calling = asyncio.create_task(self._tasks.rounds.drive(request, self._send))
        knowing = asyncio.create_task(self._intake.has_task.wait())
        try:
            await asyncio.wait({calling, knowing}, return_when=asyncio.FIRST_COMPLETED)
            if self._intake.has_task.is_set():
                return await self._pursue(limit, calling)
            return await self._answered(limit, calling.result())
        finally:
            for task in (calling, knowing):
                task.cancel()
            if self._intake.task is not None and not (self._pursuit and self._pursuit.has_ended):
                self._tasks.let_go(self._intake.task.id)
            await asyncio.gather(calling, knowing, return_exceptions=True)

    async def _answered(self, limit: asyncio.Timeout, outcome: Result | TaskStatus | StreamPart) -> Result:
        """Go on from an answer before which no task was known."""
        if isinstance(outcome, Result):
            return outcome
        if isinstance(outcome, TaskStatus):
            self._intake.own(outcome)
            return await self._pursue(limit, None)
        if outcome.task_id is not None:
            self._intake.own(outcome.task or TaskStatus(outcome.task_id, "working"))
            return await self._pursue(limit, outcome)
        self._intake.add(outcome)
        if outcome.end is None:
            raise BadAnswer("The server sent a part of a result, and neither the rest of it nor a task.")
        if not outcome.end.content:
            self._intake.tracker.check()
        return self._intake.tracker.merged(outcome.end)

    async def _send(self, request: CallTool) -> Any:
        self._clock.go()
        async with self._intake.silence(self._silence):
            outcome = await self._calls.send(
                request,
                self._request_meta,
                timeout=_FOREVER,
                on_progress=self._on_progress,
                sink=self._intake,
            )
        if isinstance(outcome, InputRequired):
            self._clock.stop()  # the time that questions take does not count
        return outcome

    async def _pursue(self, limit: asyncio.Timeout, begun: Begun) -> Result:
        self._clock.go()
        self._pursuit = TaskSegments(
            self._tasks, self._intake, self._intake.task, asked=set(), insist=True, limit=limit
        )
        return await self._pursuit.result(begun)


class _Clock:
    """Stops a deadline for a while."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._left: float | None = None

    def stop(self) -> None:
        due = self._limit.when()
        if due is not None and not self._limit.expired():
            self._left = due - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def go(self) -> None:
        left, self._left = self._left, None
        if left is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + left)
