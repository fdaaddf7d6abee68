"""Takes a task to its end: answers what it asks, each question once, and gets what it gives.

Two ways, by version: questions and result told with the status, or both on the stream of one request
that waits for the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from antiphon.client.tasks.following import follow
from antiphon.client.tasks.requests import TaskRequests, new_inbox
from antiphon.errors import BadAnswer, Failure, RequestError, TaskCancelled
from antiphon.model.outcome import Result
from antiphon.model.question import Question
from antiphon.model.task_status import TaskStatus
from antiphon.wire.client.tasks import fault_error

__all__ = ["LATE_RESULT_SECONDS", "Redemption", "checked", "outcome"]

LATE_RESULT_SECONDS = 1.0
"""Seconds in which a result that is there must come on the stream that waits; then it is asked for anew."""


def checked(result: Result, what: str) -> Result:
    """The result; raises the `Failure` that it is."""
    if result.is_error:
        message = result.text or f"{what} failed and did not say why."
        raise Failure(message, data=result.data, content=result.content)
    return result


def outcome(status: TaskStatus) -> Result:
    """What a task that has ended gave; raises the error that it ended with, or `TaskCancelled`."""
    if status.status == "cancelled":
        reason = f": {status.message}" if status.message else "."
        raise TaskCancelled(f"The task {status.id} was cancelled{reason}")
    if status.status == "failed":
        raise fault_error(status)
    if status.result is None:
        raise BadAnswer(f"The server says that the task {status.id} is completed, and has no result for it.")
    return status.result


class Redemption:
    """One wait for one task. `asked` are the keys that were answered before; with `insist`, a question
    that this client has no handler for is an error, and without it somebody else may answer."""

    def __init__(
        self, tasks: TaskRequests, id: str, known: TaskStatus | None, *, asked: set[str], insist: bool = False
    ) -> None:
        self.limit: asyncio.Timeout | None = None
        """A deadline in which the time that questions take does not count."""
        self.has_ended = False
        self._tasks = tasks
        self._id = id
        self._known = known
        self._asked = asked
        self._insist = insist
        self._inbox = new_inbox()
        self._turn = asyncio.Lock()
        self._answering: dict[asyncio.Task[Any], frozenset[str]] = {}
        self._sending: set[asyncio.Task[Any]] = set()
        self._latest: TaskStatus | None = None

    async def result(self) -> Result:
        """What the task gives; raises what it failed with, `TaskCancelled` or `TaskLost`."""
        return await (self._by_status() if self._tasks.take_answers else self._by_request())

    # 2026-07-28

    async def _by_status(self) -> Result:
        try:
            return outcome(await self.end())
        finally:
            self._latest = None
            for work in self._answering:
                work.cancel()
            if self._answering:
                await asyncio.wait(tuple(self._answering))

    async def end(self) -> TaskStatus:
        """The task as it ended; what it asks meanwhile is answered, on versions that tell that."""
        async with aclosing(follow(self._tasks, self._id, self._known, self._inbox)) as statuses:
            async for status in statuses:
                if status.has_ended:
                    self.has_ended = True
                    return status
                self._attend(status)
        raise AssertionError("it ends with the end of the task")

    def _attend(self, status: TaskStatus) -> None:
        """Begin to answer what is new, and leave what is no longer asked."""
        self._latest = status
        for work, keys in self._answering.items():
            if work not in self._sending and keys.isdisjoint(status.questions):
                work.cancel()
        answers = self._tasks.rounds.answers
        new = {
            key: ask
            for key, ask in status.questions.items()
            if key not in self._asked and (self._insist or answers(ask))
        }
        if new:
            self._asked.update(new)
            work = asyncio.create_task(self._answer(new))
            self._answering[work] = frozenset(new)
            work.add_done_callback(self._answered)

    async def _answer(self, questions: Mapping[str, Question]) -> None:
        loop, limit = asyncio.get_running_loop(), self.limit
        async with self._turn:
            began = loop.time()
            due = limit.when() if limit is not None else None
            if limit is not None:
                limit.reschedule(None)
            try:
                responses = {key: await self._tasks.rounds.answer(key, ask) for key, ask in questions.items()}
            finally:
                if limit is not None and due is not None and not limit.expired():
                    limit.reschedule(due + loop.time() - began)
        work = asyncio.current_task()
        assert work is not None
        self._sending.add(work)
        await self._tasks.answer(self._id, responses)

    def _answered(self, work: asyncio.Task[Any]) -> None:
        keys = self._answering.pop(work)
        self._sending.discard(work)
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or error is not None:
            self._asked.difference_update(keys)
        if error is not None:
            self._inbox.fail(error)
        elif work.cancelled() and self._latest is not None:
            self._attend(self._latest)  # it may be asked again by now

    # 2025-11-25

    async def _by_request(self) -> Result:
        """Wait on the request for the result, on whose stream the questions come, and look meanwhile."""
        looking = asyncio.create_task(self.end())
        tasks: set[asyncio.Task[Any]] = {looking}
        waiting: asyncio.Task[Result] | None = None
        if self._tasks.rounds.answers_anything:  # whoever waits there is asked
            waiting = asyncio.create_task(self._tasks.redeem(self._id, timeout=float("inf")))
            tasks.add(waiting)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if waiting is not None and waiting.done():
                try:
                    return self._redeemed(waiting.result())
                except RequestError as error:
                    await self._see_whose_it_is(error)
            status = await looking
            if status.status == "cancelled":
                return outcome(status)
            if waiting is not None and not waiting.done():
                await asyncio.wait({waiting}, timeout=LATE_RESULT_SECONDS)
                if waiting.done():
                    return waiting.result()
            return await self._tasks.redeem(self._id)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _redeemed(self, result: Result) -> Result:
        self.has_ended = True
        return result

    async def _see_whose_it_is(self, error: RequestError) -> None:
        """Raise the error if it is the task's; it may only mean that there is no waiting at this server."""
        status = await self._tasks.get(self._id)
        if status.has_ended:
            self.has_ended = True
            if status.status == "cancelled":
                outcome(status)
        if status.status != "working":
            raise error
