"""Tasks at a server, as one of its callers sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.cli.call.questions import Asker
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target
from antiphon.cli.tasks.questions import Questions
from antiphon.cli.tasks.report import Shown
from antiphon.errors import AntiphonError, MethodNotFound
from antiphon.model.task import Fault

if TYPE_CHECKING:
    from antiphon.client import Client, Elicitation, TaskHandle, TaskStatus
    from antiphon.store.contract import Entry

__all__ = ["Caller"]

_BREATH = 0.2
"""Seconds without another question after which those of one round have come."""


class Caller:
    """A caller of a server; enter it to connect."""

    def __init__(self, target: Target, protocol: str | None) -> None:
        self._target = target
        self._protocol = protocol
        self._round: _Round | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Caller:
        try:
            client = self._target.client(protocol=self._protocol, elicit=self._elicit)
        except ValueError as error:
            raise CommandError(str(error)) from None
        self._client: Client = await self._open.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def list(self, limit: int) -> Sequence[Shown]:
        """The caller's own tasks, on versions that list them."""
        try:
            found = await self._client.tasks()
        except MethodNotFound:
            raise CommandError(
                f"In {self._client.version} this server lists no tasks: a caller knows its own by their ids. "
                "Show one: antiphon tasks show URL ID. List them in an older version: --protocol 2025-11-25. "
                "Or, as the operator, list a store: antiphon tasks ls sqlite:///tasks.db."
            ) from None
        return [Shown.told(status) for status in found[:limit]]

    async def show(self, id: str) -> tuple[Shown, Sequence[Entry] | None]:
        """A task, with what it gave, also where that has to be asked for."""
        handle = self._client.task(id)
        status = await handle.status()
        task = Shown.told(status)
        if status.has_ended and status.status != "cancelled" and task.result is None and task.fault is None:
            task = await self._with_outcome(task, handle)
        return task, None

    async def follow(self, id: str) -> AsyncIterator[Shown]:
        """A task, and then each change."""
        async for status in self._client.task(id).updates():
            yield Shown.told(status)

    async def answer(self, id: str, asker: Asker, key: str | None) -> Sequence[str]:
        """Answer what a task asks."""
        if self._client.server is not None:
            asker.server = self._client.server.title or self._client.server.name
        handle = self._client.task(id)
        status = await handle.status()
        if status.status != "input_required":
            raise CommandError(f"The task {id} asks nothing: it is {status.status}.")
        if not status.questions:
            return await self._answer_on_a_stream(handle, asker, key)
        responses = await Questions(asker).answer(status.questions, key)
        await handle.answer(responses)
        return list(responses)

    async def cancel(self, id: str) -> str:
        """Cancel a task; how it stands then, for a server may take its time."""
        handle = self._client.task(id)
        await handle.cancel()
        return (await handle.status()).status

    async def _elicit(self, question: Elicitation) -> Any:
        assert self._round is not None
        return await self._round.answer(question)

    async def _answer_on_a_stream(self, handle: TaskHandle, asker: Asker, key: str | None) -> Sequence[str]:
        """Wait where the questions come, until those that are open now are answered."""
        if key is not None:
            raise CommandError(f"In {self._client.version} questions have no keys: leave out --key.")
        self._round = _Round(asker)
        ends = [
            asyncio.create_task(end)
            for end in (handle.result(check=False), _moves_on(handle), self._round.is_over.wait())
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            next(filter(asyncio.Task.done, ends)).result()
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        return ["what was asked"]

    async def _with_outcome(self, task: Shown, handle: TaskHandle) -> Shown:
        try:
            return msgspec.structs.replace(task, result=await handle.result(check=False))
        except AntiphonError as error:
            fault = Fault(getattr(error, "code", -32603), str(error))
            return msgspec.structs.replace(task, fault=fault)


class _Round:
    """The questions that are asked in one breath. What is asked after an answer to them is left open."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._asked: list[Elicitation] = []
        self._is_full = False
        self.is_over = asyncio.Event()

    async def answer(self, question: Elicitation) -> Any:
        """What is answered; a question of a later round is never answered."""
        # One that was asked already comes again, since its answer did not fit.
        if self._is_full and question not in self._asked:
            self.is_over.set()
            await asyncio.get_running_loop().create_future()
        self._asked.append(question)
        await asyncio.sleep(_BREATH)
        self._is_full = True
        return await self._asker(question)


async def _moves_on(handle: TaskHandle) -> TaskStatus:
    # Updates end with the end of the task, so there is one.
    return await anext(status async for status in handle.updates() if status.status != "input_required")
