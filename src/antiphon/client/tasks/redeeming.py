"""Waits for the result of a task, and answers each of its questions once.

There are two ways, by version: the status carries the result, or one request waits for the result. Questions
come with the status, on the stream of that request, or in place of the result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from antiphon.client.connection import Callback, deliver
from antiphon.client.tasks.following import follow
from antiphon.client.tasks.requests import TaskRequests, new_inbox
from antiphon.errors import AntiphonError, BadAnswer, Failure, InvalidParams, RequestError, TaskCancelled
from antiphon.model.notification import Progress
from antiphon.model.outcome import Result
from antiphon.model.question import Question
from antiphon.model.request import GetTask
from antiphon.model.task_status import TaskStatus
from antiphon.printable import printable_text
from antiphon.wire.client.tasks import fault_error

__all__ = ["LATE_RESULT_SECONDS", "Redemption", "checked", "outcome"]

LATE_RESULT_SECONDS = 1.0
"""How long the client waits for the result on the open request after the end of the task."""
_LAST_PROGRESS_SECONDS = 1.0
"""How long the client waits for the last progress of a task whose result it has."""
_ASKED_AGAIN_SECONDS = 1.0
"""How long the client waits for an answer of its own before it asks again for the result or the questions."""


def checked(result: Result, name: str) -> Result:
    """Return the result; raises `Failure` if it is an error. `name` is used if the error has no text."""
    if result.is_error:
        message = printable_text(result.text) or f"{name} failed and gave no reason."
        raise Failure(message, data=result.data, content=result.content)
    return result


def outcome(status: TaskStatus) -> Result:
    """Return the result of a task that has ended; raises the error of the task, or `TaskCancelled`."""
    if status.status == "cancelled":
        reason = f": {status.message}" if status.message else "."
        raise TaskCancelled(f"The task {status.id} was cancelled{reason}")
    if status.status == "failed":
        raise fault_error(status)
    if status.result is None:
        raise BadAnswer(f"The server says that the task {status.id} is completed, and sent no result.")
    return status.result


class Redemption:
    """One wait for one task.

    `answered` are the keys of questions that were answered before. With `insist`, a question that no callback
    answers is an error; without it, another client may answer. `on_progress` takes the progress of the task.
    """

    def __init__(
        self,
        tasks: TaskRequests,
        id: str,
        known: TaskStatus | None,
        *,
        answered: set[str],
        insist: bool = False,
        on_progress: Callback | None = None,
    ) -> None:
        self.limit: asyncio.Timeout | None = None
        """A deadline, which is stopped while a callback answers a question."""
        self.has_ended = False
        self._tasks = tasks
        self._id = id
        self._known = known
        self._answered = answered
        self._insist = insist
        self._on_progress = on_progress
        self._progress: Progress | None = None
        self._inbox = new_inbox()
        self._turn = asyncio.Lock()
        self._answering: dict[asyncio.Task[Any], frozenset[str]] = {}
        self._sending: set[asyncio.Task[Any]] = set()
        self._latest: TaskStatus | None = None
        self._accepted: set[str] = set()
        self._has_answered = asyncio.Event()

    async def result(self) -> Result:
        """Return the result of the task; raises the error of the task, `TaskCancelled` or `TaskLost`."""
        try:
            return await (self._by_status() if self._tasks.status_has_result else self._by_request())
        finally:
            self._latest = None
            for work in self._answering:
                work.cancel()
            if self._answering:
                await asyncio.wait(tuple(self._answering))

    # The status carries the result

    async def _by_status(self) -> Result:
        return outcome(await self.end())

    async def end(self) -> TaskStatus:
        """Return the last status of the task. Answers its questions meanwhile, if the status carries them."""
        async with aclosing(follow(self._tasks, self._id, self._known, self._inbox)) as statuses:
            async for status in statuses:
                if status.has_ended:
                    self.has_ended = True
                else:
                    self._answer_new(status)
                await self.report(status.progress)
                if status.has_ended:
                    return status
        raise AssertionError("the statuses end with the end of the task")

    async def report(self, progress: Progress | None) -> None:
        """Call the callback for progress, if the status has progress that is new."""
        if self._on_progress is not None and progress is not None and progress != self._progress:
            self._progress = progress
            await deliver(self._on_progress, progress)

    def _answer_new(self, status: TaskStatus) -> None:
        """Start to answer new questions, and stop answering questions that are no longer open."""
        self._latest = status
        for work, keys in self._answering.items():
            if work not in self._sending and keys.isdisjoint(status.questions):
                work.cancel()
        can_answer = self._tasks.rounds.can_answer
        new = {
            key: question
            for key, question in status.questions.items()
            if key not in self._answered and (self._insist or can_answer(question))
        }
        if new:
            self._answered.update(new)
            work = asyncio.create_task(self._answer(new))
            self._answering[work] = frozenset(new)
            work.add_done_callback(self._finish_answer)

    async def _answer(self, questions: Mapping[str, Question]) -> None:
        loop, limit = asyncio.get_running_loop(), self.limit
        async with self._turn:
            began = loop.time()
            due = limit.when() if limit is not None else None
            if limit is not None:
                limit.reschedule(None)
            try:
                responses = {
                    key: await self._tasks.rounds.answer(key, question) for key, question in questions.items()
                }
            finally:
                if limit is not None and due is not None and not limit.expired():
                    limit.reschedule(due + loop.time() - began)
        work = asyncio.current_task()
        assert work is not None
        self._sending.add(work)
        try:
            await self._tasks.answer(self._id, responses)
        except InvalidParams:
            status = await self._tasks.get(self._id)
            if not responses.keys().isdisjoint(status.questions):
                raise
            # Another client answered first, or the task has ended.
        self._accepted.update(responses)
        self._has_answered.set()

    def _finish_answer(self, work: asyncio.Task[Any]) -> None:
        keys = self._answering.pop(work)
        self._sending.discard(work)
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or error is not None:
            self._answered.difference_update(keys)
        if error is not None:
            self._inbox.fail(error)
        elif work.cancelled() and self._latest is not None:
            self._answer_new(self._latest)  # the server may have asked the same question again meanwhile

    # One request waits for the result

    async def _by_request(self) -> Result:
        """Wait on the request for the result, with which the questions come, and poll meanwhile."""
        polling = asyncio.create_task(self.end())
        tasks: set[asyncio.Task[Any]] = {polling}
        waiting: asyncio.Task[Result | None] | None = None
        # A server may ask on the stream of this request. Without callbacks, another client has to answer.
        if self._tasks.answers_by_key or self._tasks.rounds.can_answer_anything:
            waiting = asyncio.create_task(self._wait_for_result())
            tasks.add(waiting)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if waiting is not None and waiting.done() and (found := waiting.result()) is not None:
                return await self._redeemed(found)
            status = await polling
            if status.status == "cancelled":
                return outcome(status)
            if waiting is not None and not waiting.done():
                await asyncio.wait({waiting}, timeout=LATE_RESULT_SECONDS)
                if waiting.done() and (found := waiting.result()) is not None:
                    return found
            return await self._tasks.redeem(self._id)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_result(self) -> Result | None:
        """Return the result; `None` if the server refuses to wait. The error of the task is raised.

        Questions that come in place of the result are answered as those of a status are.
        """
        is_refused = False
        while True:
            accepted = frozenset(self._accepted)
            try:
                found = await self._tasks.result_or_questions(self._id, timeout=float("inf"))
            except RequestError:
                status = await self._tasks.get(self._id)
                if status.status == "working":
                    self._tasks.expect_questions()  # they come with the status
                    return None
                if status.has_ended:
                    self.has_ended = True
                    await self.report(status.progress)
                if status.status == "cancelled":
                    outcome(status)
                if status.has_ended or is_refused:
                    raise
                is_refused = True  # it may have begun to ask just now
                continue
            is_refused = False
            if isinstance(found, Result):
                return found
            # The server had these answers before the request, so it has refused them and asks again.
            asked_again = accepted & found.questions.keys()
            self._accepted -= asked_again
            self._answered -= asked_again
            self._has_answered.clear()
            self._answer_new(TaskStatus(self._id, "input_required", questions=found.questions))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASKED_AGAIN_SECONDS):
                    await self._has_answered.wait()

    async def _redeemed(self, result: Result) -> Result:
        """Return the result, after the last progress of the task, which only the status carries."""
        self.has_ended = True
        if self._on_progress is None:
            return result
        progress = None
        with contextlib.suppress(AntiphonError, TimeoutError):  # the result counts, with or without progress
            # The timeout of the request does not bound a login, for which the result must not wait.
            async with asyncio.timeout(_LAST_PROGRESS_SECONDS):
                progress = (await self._tasks.connection.ask(GetTask(self._id))).progress
        await self.report(progress)
        return result
