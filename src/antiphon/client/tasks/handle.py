"""The handle of a task, which a program keeps while the server works, in this process or in another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from antiphon.client.connection import Callback
from antiphon.client.input_rounds import responses
from antiphon.client.streaming.segment_queue import SegmentQueue
from antiphon.client.streaming.stream import Stream
from antiphon.client.streaming.task_segments import TaskSegments
from antiphon.client.tasks.following import follow
from antiphon.client.tasks.redeeming import Redemption, checked
from antiphon.client.tasks.requests import TaskRequests, new_inbox
from antiphon.errors import ClientError, TaskLost, TimedOut
from antiphon.model.outcome import Result
from antiphon.model.task_status import TaskStatus

__all__ = ["TaskHandle"]


class TaskHandle:
    """One task of a client. All methods may raise `TaskLost`, and the errors that the client raises."""

    def __init__(
        self, tasks: TaskRequests, known: TaskStatus | str, *, on_progress: Callback | None = None
    ) -> None:
        self._tasks = tasks
        self._on_progress = on_progress
        self._known = None if isinstance(known, str) else known
        self._id = known if isinstance(known, str) else known.id
        self._answered: set[str] = set()

    def __repr__(self) -> str:
        return f"TaskHandle({self.id!r})"

    @property
    def id(self) -> str | None:
        """The id of the task, for `Client.task`; `None` if the server answered at once and made no task."""
        return self._id or None

    async def status(self, *, timeout: float | None = None) -> TaskStatus:
        """Return the status of the task."""
        if not self._id:
            assert self._known is not None
            return self._known
        return await self._tasks.get(self._id, timeout=timeout)

    async def updates(self) -> AsyncGenerator[TaskStatus, None]:
        """Yield the status of the task now and after each change, until the task has ended."""
        if not self._id:
            yield await self.status()
            return
        async with aclosing(follow(self._tasks, self._id, self._known, new_inbox())) as statuses:
            async for status in statuses:
                yield status

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Answer questions by key: with the content of the form, "decline", "cancel", or an MCP response.

        Raises `ClientError` in versions where only the client's own callbacks can answer.
        """
        if not self._tasks.answers_by_key:
            version = self._tasks.connection.dialect.version
            raise ClientError(
                f"In protocol version {version}, only the client that waits for a task can answer it: "
                "pass elicit=… to the client, and await result()."
            )
        status = await self.status()
        if answers and self._id:
            given = responses(status.questions, answers)
            keys = self._tasks.connection.dialect.in_order(given)
            await self._tasks.answer(self._id, {key: given[key] for key in keys})
            self._answered.update(answers)

    async def result(self, *, timeout: float | None = None, check: bool = True) -> Result:
        """Wait for the result of the task and return it; without a `timeout` there is no limit.

        The client's callbacks answer the questions of the task. Other clients can answer the questions that
        these callbacks cannot. Raises `Failure` if the tool failed, unless `check` is false, the
        `RequestError` that the task ended with, `TaskCancelled`, or `TimedOut`: then you can ask again.
        """
        if not self._id:
            assert self._known is not None
            assert self._known.result is not None
            result = self._known.result
        else:
            redemption = Redemption(
                self._tasks,
                self._id,
                self._known,
                answered=self._answered,
                on_progress=self._on_progress,
            )
            try:
                async with asyncio.timeout(timeout) as limit:
                    result = await redemption.result()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimedOut(
                    f"The task {self._id} has not ended within {timeout:g} s. It still runs: ask again later."
                ) from None
        return checked(result, f"The task {self._id}") if check else result

    def stream(self, *, after: int = 0, timeout: float | None = None, check: bool = True) -> Stream:
        """Stream the segments of the task numbered above `after`.

        async with client.task(id).stream(after=12) as stream:
            async for segment in stream: ...

        The stream's `result` is the whole result all the same. Questions are answered as in `result`. Leaving
        the context early does not stop the task. `timeout` bounds the whole stream. Raises `ValueError`.
        """
        if after < 0:
            raise ValueError(f"after={after} is not the number of a segment: numbers start at 1.")
        segments = SegmentQueue(self._tasks.max_message, after)
        name = f"The task {self._id}"
        return Stream(
            segments, lambda limit: self._read(segments, limit), name=name, timeout=timeout, check=check
        )

    async def _read(self, segments: SegmentQueue, limit: asyncio.Timeout) -> Result:
        if not self._id:
            assert self._known is not None
            assert self._known.result is not None
            return self._known.result
        segments.set_task(self._known or TaskStatus(self._id, "working"))
        reader = TaskSegments(
            self._tasks,
            segments,
            self._known,
            answered=self._answered,
            insist=False,
            limit=limit,
            on_progress=self._on_progress,
        )
        return await reader.result()

    async def cancel(self) -> None:
        """Cancel the task. A task that has ended stays as it is."""
        if self._id:
            await self._tasks.cancel(self._id)

    async def drive(self, *, timeout: float | None, cancels: bool = True) -> Result:
        """Return the result for a call that became a task; with `cancels`, a failed wait cancels the task."""
        redemption = Redemption(
            self._tasks,
            self._id,
            self._known,
            answered=self._answered,
            insist=True,
            on_progress=self._on_progress,
        )
        try:
            async with asyncio.timeout(timeout) as redemption.limit:
                return await redemption.result()
        except TimeoutError:
            if redemption.limit is None or not redemption.limit.expired():
                raise
            raise TimedOut(
                f"The task {self._id} has not ended within {timeout:g} s. Give it more time with timeout=."
            ) from None
        except TaskLost:
            redemption.has_ended = True
            raise
        finally:
            if cancels and not redemption.has_ended:
                self._tasks.abandon(self._id)
