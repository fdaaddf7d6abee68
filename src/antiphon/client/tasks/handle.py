"""The handle of a task: what a program holds while the server works, in this process or in another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

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
    """One task of a client's. Everything it does may raise `TaskLost`, and whatever the client raises."""

    def __init__(self, tasks: TaskRequests, known: TaskStatus | str) -> None:
        self._tasks = tasks
        self._known = None if isinstance(known, str) else known
        self._id = known if isinstance(known, str) else known.id
        self._asked: set[str] = set()

    def __repr__(self) -> str:
        return f"TaskHandle({self.id!r})"

    @property
    def id(self) -> str | None:
        """What to take it up with elsewhere; `None` if the server answered at once and made no task."""
        return self._id or None

    async def status(self, *, timeout: float | None = None) -> TaskStatus:
        """How it stands."""
        if not self._id:
            assert self._known is not None
            return self._known
        return await self._tasks.get(self._id, timeout=timeout)

    async def updates(self) -> AsyncIterator[TaskStatus]:
        """How it stands, and then each change once, until it has ended."""
        if not self._id:
            yield await self.status()
            return
        async with aclosing(follow(self._tasks, self._id, self._known, new_inbox())) as statuses:
            async for status in statuses:
                yield status

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Answer questions by key, each with what was filled in, `"decline"`, `"cancel"`, or as on the wire.

        Raises `ClientError` on versions where only the client's own handlers can answer.
        """
        if not self._tasks.take_answers:
            version = self._tasks.connection.dialect.version
            raise ClientError(
                f"In {version} a task is answered by the client that waits for its result: "
                "give the client elicit=…, and await result()."
            )
        status = await self.status()
        if answers and self._id:
            await self._tasks.answer(self._id, responses(status.questions, answers))
            self._asked.update(answers)

    async def result(self, *, timeout: float | None = None, check: bool = True) -> Result:
        """What it gives in the end, for which it is waited `timeout` seconds, or as long as it takes.

        What it asks meanwhile is answered by the client's handlers; what those cannot answer, somebody
        else has to. Raises `Failure` where the tool failed, unless `check` is false, the `RequestError`
        that it ended with, `TaskCancelled`, or `TimedOut`, after which it can be asked for again.
        """
        if not self._id:
            assert self._known is not None
            assert self._known.result is not None
            result = self._known.result
        else:
            redeeming = Redemption(self._tasks, self._id, self._known, asked=self._asked)
            try:
                async with asyncio.timeout(timeout) as limit:
                    result = await redeeming.result()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimedOut(
                    f"The task {self._id} has not ended within {timeout:g} s. It goes on: ask again later."
                ) from None
        return checked(result, f"The task {self._id}") if check else result

    def stream(self, *, after: int = 0, timeout: float | None = None, check: bool = True) -> Stream:
        """What it emits, as it comes; after the number `after` only, of the last segment already had.

        async with client.task(id).stream(after=12) as stream:
            async for segment in stream: ...

        Its `result` is the whole one all the same. What it asks meanwhile is answered as in `result`.
        Leaving it early does not stop the task; `timeout` is for all of it.
        """
        if after < 0:
            raise ValueError(f"after={after} is no number of a segment: they start at 1.")
        intake = SegmentQueue(self._tasks.max_message, after)
        what = f"The task {self._id}"
        return Stream(
            intake, lambda limit: self._pursue(intake, limit), what=what, timeout=timeout, check=check
        )

    async def _pursue(self, intake: SegmentQueue, limit: asyncio.Timeout) -> Result:
        if not self._id:
            assert self._known is not None
            assert self._known.result is not None
            return self._known.result
        intake.own(self._known or TaskStatus(self._id, "working"))
        pursuit = TaskSegments(self._tasks, intake, self._known, asked=self._asked, insist=False, limit=limit)
        return await pursuit.result()

    async def cancel(self) -> None:
        """Stop it. One that has ended stays as it is."""
        if self._id:
            await self._tasks.cancel(self._id)

    async def drive(self, *, timeout: float | None) -> Result:
        """What it gives, for a caller that does not know that there is a task: without one, it is stopped."""
        redeeming = Redemption(self._tasks, self._id, self._known, asked=self._asked, insist=True)
        try:
            async with asyncio.timeout(timeout) as redeeming.limit:
                return await redeeming.result()
        except TimeoutError:
            if redeeming.limit is None or not redeeming.limit.expired():
                raise
            raise TimedOut(
                f"The task {self._id} has not ended within {timeout:g} s. Give it more time with timeout=."
            ) from None
        except TaskLost:
            redeeming.has_ended = True
            raise
        finally:
            if not redeeming.has_ended:
                self._tasks.let_go(self._id)
