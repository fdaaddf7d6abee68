"""The stream of segments that a program reads, and the call behind it.

A call begins as an answer, in as many rounds as it takes. If it becomes a task, the segments of the task
are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
from antiphon.model.segment import ResponseMode, Segment, StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["Stream", "StreamedCall"]

_FOREVER = float("inf")


class Stream:
    """The segments of a tool's output: open the stream with `async with`, and read it with `async for`.

    After the last segment, reading raises the errors of a call: `Failure` if the tool failed, unless `check`
    is false, the `RequestError` that the call ended with, `TaskCancelled`, `TaskLost`, `TimedOut`,
    `Unreachable` or `BadAnswer`.
    """

    def __init__(
        self,
        segments: SegmentQueue,
        drive: Callable[[asyncio.Timeout], Awaitable[Result]],
        *,
        name: str,
        timeout: float | None,
        check: bool,
    ) -> None:
        self._segments = segments
        self._drive = drive
        self._name = name
        self._timeout = timeout
        self._check = check
        self._working: asyncio.Task[None] | None = None
        self._result: Result | None = None
        self._error: Exception | None = None

    @property
    def result(self) -> Result:
        """The whole result with all segments, once the stream has ended.

        Raises `ClientError` before the end, and the error of the call if there is no result.
        """
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ClientError(f"{self._name} has no result yet: read its segments to the end.")
        return self._result

    @property
    def task_id(self) -> str | None:
        """The id of the task, for `Client.task`; `None` if there is no task, or none is known yet."""
        return self._segments.tracker.task_id

    async def __aenter__(self) -> Self:
        if self._working is not None:
            raise ClientError("A stream is read once: make another.")
        self._segments.on_failure = self._fail
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
        segment = await self._segments.next()
        if segment is not None:
            return segment
        if self._error is not None:
            raise self._error
        if self._result is not None and self._check:
            checked(self._result, self._name)
        raise StopAsyncIteration

    @property
    def _has_ended(self) -> bool:
        return self._result is not None or self._error is not None

    def _fail(self, error: AntiphonError) -> None:
        """Stop with an error, after a message that cannot be right."""
        if not self._has_ended and self._working is not None:
            self._error = error
            self._working.cancel()

    async def _work(self) -> None:
        limit = asyncio.timeout(None if self._timeout == _FOREVER else self._timeout)
        try:
            async with limit:
                result = await self._drive(limit)
                self._segments.settle(result)
            self._result = result
        except TimeoutError as error:
            self._error = self._error or (self._timed_out() if limit.expired() else error)
        except asyncio.CancelledError:
            self._error = self._error or ClientError(f"{self._name} was left before its end.")
        except Exception as error:
            self._error = self._error or error
        finally:
            self._segments.end()

    def _timed_out(self) -> TimedOut:
        return TimedOut(
            f"{self._name} has not ended within {self._timeout:g} s. Give it more time with timeout=."
        )


class StreamedCall:
    """Drives one call to its end. If the program stops reading, the call is cancelled."""

    def __init__(
        self,
        calls: ToolCalls,
        tasks: TaskRequests,
        segments: SegmentQueue,
        request: CallTool,
        request_meta: RequestMeta,
        *,
        response_modes: Sequence[ResponseMode],
        timeout: float | None,
        on_progress: Callback | None,
    ) -> None:
        self._response_modes = response_modes
        self._calls = calls
        self._tasks = tasks
        self._segments = segments
        self._request = request
        self._request_meta = request_meta
        # A caller that bounds the whole call accepts silence within it.
        self._max_silence = tasks.connection.timeout if timeout is None else _FOREVER
        self._on_progress = on_progress
        self._reader: TaskSegments | None = None
        self._clock: _Clock

    async def drive(self, limit: asyncio.Timeout) -> Result:
        """Return the result; raises the error of the call."""
        self._clock = _Clock(limit)
        request, self._request_meta = await self._calls.as_stream(
            self._request, self._request_meta, self._response_modes
        )
        calling = asyncio.create_task(self._tasks.rounds.drive(request, self._send))
        learning = asyncio.create_task(self._segments.has_task.wait())
        try:
            await asyncio.wait({calling, learning}, return_when=asyncio.FIRST_COMPLETED)
            if self._segments.has_task.is_set():
                return await self._read_task(limit, calling)
            return await self._answered(limit, calling.result())
        finally:
            for task in (calling, learning):
                task.cancel()
            if self._segments.task is not None and not (self._reader and self._reader.has_ended):
                self._tasks.abandon(self._segments.task.id)
            await asyncio.gather(calling, learning, return_exceptions=True)

    async def _answered(self, limit: asyncio.Timeout, outcome: Result | TaskStatus | StreamPart) -> Result:
        """Return the result after the call has returned and no task was known before."""
        if isinstance(outcome, Result):
            return outcome
        if isinstance(outcome, TaskStatus):
            self._segments.set_task(outcome)
            return await self._read_task(limit, None)
        if outcome.task_id is not None:
            self._segments.set_task(outcome.task or TaskStatus(outcome.task_id, "working"))
            return await self._read_task(limit, outcome)
        self._segments.add(outcome)
        if outcome.end is None:
            raise BadAnswer("The server sent a part of a result, and neither the rest of it nor a task.")
        if not outcome.end.content:
            self._segments.tracker.check()
        return self._segments.tracker.merged(outcome.end)

    async def _send(self, request: CallTool) -> Any:
        self._clock.resume()
        async with self._segments.silence(self._max_silence):
            outcome = await self._calls.send(
                request,
                self._request_meta,
                timeout=_FOREVER,
                on_progress=self._on_progress,
                sink=self._segments,
            )
        if isinstance(outcome, StreamPart) and outcome.stopped is not None and outcome.task_id is None:
            self._segments.add(outcome)
            outcome = outcome.stopped
        if isinstance(outcome, InputRequired):
            self._clock.pause()  # the time for answering questions does not count
        return outcome

    async def _read_task(self, limit: asyncio.Timeout, begun: Begun) -> Result:
        self._clock.resume()
        self._reader = TaskSegments(
            self._tasks,
            self._segments,
            self._segments.task,
            answered=set(),
            insist=True,
            limit=limit,
            on_progress=self._on_progress,
        )
        return await self._reader.result(begun)


class _Clock:
    """Pauses and resumes a deadline."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._left: float | None = None

    def pause(self) -> None:
        due = self._limit.when()
        if due is not None and not self._limit.expired():
            self._left = due - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def resume(self) -> None:
        left, self._left = self._left, None
        if left is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + left)
