"""The tasks of a server, as one of its callers sees them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target
from antiphon.cli.tasks.questions import answer_questions
from antiphon.cli.tasks.report import TaskView
from antiphon.errors import AntiphonError, MethodNotFound, TimedOut
from antiphon.model.task import Fault

if TYPE_CHECKING:
    from antiphon.client import Client, Elicitation, TaskHandle, TaskStatus
    from antiphon.store.contract import Entry, TaskFilter

__all__ = ["ServerTasks"]

ROUND_GAP_SECONDS = 0.2
"""Questions that follow each other within this time belong to the same round."""


class ServerTasks:
    """The tasks of a caller at a server. Enter it to connect."""

    def __init__(self, target: Target, protocol: str | None) -> None:
        self.target = target
        self._protocol = protocol
        self._round: _Round | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> ServerTasks:
        client = self.target.client(protocol=self._protocol, elicit=self._elicit)
        self._client: Client = await self._open.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def list(self, limit: int, filter: TaskFilter, principal: str | None) -> Sequence[TaskView]:
        """Return the caller's tasks that match a filter, if the protocol version lists tasks."""
        given = (("--phase", filter.phase), ("--tool", filter.tool), ("--principal", principal))
        for option, value in given:
            if value is not None:
                raise CommandError(f"{option} applies to a store: a server does not say this about a task.")
        try:
            statuses = await self._client.tasks()
        except MethodNotFound as error:
            raise CommandError(self._without_list(error)) from None
        tasks = [TaskView.from_status(status) for status in statuses]
        return [task for task in tasks if _matches(filter, task)][:limit]

    def _without_list(self, error: MethodNotFound) -> str:
        """Return why the server does not list tasks, and which commands show tasks all the same."""
        client, target = self._client, self.target
        name = shlex.quote(target.name) if target.is_remote else "TARGET"
        elsewhere = (
            f"antiphon tasks show {name} ID. If you operate the server, list all tasks of its store: "
            "antiphon tasks ls sqlite:///tasks.db."
        )
        if "authentication" in error.message:
            return f"{error.message} From the command line: {elsewhere}"
        if not client.offers.tasks:
            return f"This server has no tasks in protocol version {client.version}."
        reason = f"This server cannot list tasks in protocol version {client.version}."
        older = (
            "A server that authenticates you lists your tasks in an older version: antiphon tasks ls "
            f"{name} --protocol 2025-11-25."
        )
        inbox = (
            f" To see what other people's tasks ask you: antiphon inbox {name}."
            if client.offers.inbox
            else ""
        )
        return f"{reason} Show a task by its ID: {elsewhere} {older}{inbox}"

    async def show(self, id: str) -> tuple[TaskView, Sequence[Entry] | None]:
        """Return a task with its result. Older versions send the result on request only."""
        handle = self._client.task(id)
        status = await handle.status()
        task = TaskView.from_status(status)
        if status.has_ended and status.status != "cancelled" and task.result is None and task.fault is None:
            task = await self._with_outcome(task, handle)
        return task, None

    async def follow(self, id: str) -> AsyncIterator[TaskView]:
        """Yield a task, then each change until the task ends."""
        loop, limit = asyncio.get_running_loop(), self.target.limit
        deadline = None if limit is None else loop.time() + limit
        async with aclosing(self._client.task(id).updates()) as statuses:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        status = await anext(statuses, None)
                except TimeoutError:
                    raise TimedOut(f"The task {id} has not ended within {limit:g} s.") from None
                if status is None:
                    return
                yield TaskView.from_status(status)

    async def answer(self, id: str, handler: ElicitationHandler, key: str | None) -> Sequence[str]:
        """Answer the open questions of a task. Return their keys."""
        if self._client.server is not None:
            handler.server_name = self._client.server.title or self._client.server.name
        handle = self._client.task(id)
        status = await handle.status()
        if status.status != "input_required":
            raise CommandError(f"Task {id} has no open question: its status is {status.status}.")
        if not status.questions:
            await self._answer_on_stream(handle, handler, key)
            return []
        responses = await answer_questions(handler, status.questions, key)
        await handle.answer(responses)
        return list(responses)

    async def cancel(self, id: str) -> str:
        """Cancel a task. Return its status afterwards: a server may cancel it later."""
        handle = self._client.task(id)
        await handle.cancel()
        return (await handle.status()).status

    async def _elicit(self, question: Elicitation) -> Any:
        assert self._round is not None
        return await self._round.answer(question)

    async def _answer_on_stream(
        self, handle: TaskHandle, handler: ElicitationHandler, key: str | None
    ) -> None:
        """Answer one round of questions where they arrive as requests on the stream of the result."""
        if key is not None:
            raise CommandError(
                f"Questions have no keys in protocol version {self._client.version}. Omit --key."
            )
        self._round = _Round(handler)
        endings = [
            asyncio.create_task(ending)
            for ending in (
                handle.result(check=False),
                _wait_until_resumed(handle),
                self._round.is_over.wait(),
            )
        ]
        try:
            seconds = self.target.timeout
            done, _ = await asyncio.wait(endings, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done and not self._round.has_begun:
                raise TimedOut(
                    f"The server has not sent the question of task {handle.id} within {seconds:g} s."
                )
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            next(filter(asyncio.Task.done, endings)).result()
        finally:
            for task in endings:
                task.cancel()
            await asyncio.gather(*endings, return_exceptions=True)

    async def _with_outcome(self, task: TaskView, handle: TaskHandle) -> TaskView:
        try:
            return msgspec.structs.replace(task, result=await handle.result(check=False))
        except AntiphonError as error:
            fault = Fault(getattr(error, "code", -32603), str(error))
            return msgspec.structs.replace(task, fault=fault)


class _Round:
    """The questions that a task asks together. Questions of later rounds stay open."""

    def __init__(self, handler: ElicitationHandler) -> None:
        self._handler = handler
        self._asked: list[Elicitation] = []
        self._is_complete = False
        self.is_over = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether the server has asked a question."""
        return bool(self._asked)

    async def answer(self, question: Elicitation) -> Any:
        """Return the answer to a question of this round. Never returns for a question of a later round."""
        # The server repeats a question of this round if it rejected the answer.
        if self._is_complete and question not in self._asked:
            self.is_over.set()
            await asyncio.get_running_loop().create_future()
        self._asked.append(question)
        await asyncio.sleep(ROUND_GAP_SECONDS)
        self._is_complete = True
        return await self._handler(question)


def _matches(filter: TaskFilter, task: TaskView) -> bool:
    """Return whether the outcome and the age of a task are those of a filter."""
    created = 0 if task.created is None else task.created
    return (
        (filter.outcome is None or task.outcome == filter.outcome)
        and (filter.created_before is None or created < filter.created_before)
        and (filter.created_since is None or created >= filter.created_since)
    )


async def _wait_until_resumed(handle: TaskHandle) -> TaskStatus:
    # The last update is the end of the task, so one always matches.
    return await anext(status async for status in handle.updates() if status.status != "input_required")
