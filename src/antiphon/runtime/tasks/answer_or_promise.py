"""Turns an answer into a promise in the middle of a call, without the function noticing.

Owns the moment of the change: the journal goes from whoever carried it into a task's log, and the
function, which never stops, is looked after by the worker from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError, LeaseLost, RequestError, StoreError
from antiphon.model.content import Block
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question
from antiphon.model.request import CallTool
from antiphon.model.segment import CallerMessage
from antiphon.model.task import Promise
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import LoggedOutput, OutputStream
from antiphon.runtime.limits import Limits
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.worker import StoreCarrier

if TYPE_CHECKING:
    from antiphon.runtime.tasks.service import TaskService

__all__ = ["AnswerOrPromise"]

logger = logging.getLogger("antiphon")


class AnswerOrPromise:
    """One call that may become a promise."""

    def __init__(
        self, promises: TaskService, call: Call[CallTool], tool: Tool, *, within: float | None = None
    ) -> None:
        self._promises = promises
        self._tool = tool
        self._wanted = asyncio.Event()
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call = _ConvertibleCall(call)
        self._call.turn = self._turn
        self._within = tool.answer_within
        self._wished = within is not None
        if within is not None:  # what the caller does not get as an answer, it gets as a task, questions too
            self._within = within
            self._call.rounds, self._call.can_ask, self._call.carrier = True, False, StoreCarrier()

    async def run(self, stage: Environment) -> Result | InputRequired | Promise:
        """Run the tool: to its answer if it is quick enough, else to the moment of the promise."""
        work = asyncio.create_task(self._tool.run(self._call, stage))
        self._call.task = work
        wanted = asyncio.create_task(self._wanted.wait())
        try:
            await asyncio.wait({work, wanted}, timeout=self._within, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                promise = await self._promise(work, stage.limits)
                if promise is not None:
                    return promise
                self._settle()
            outcome = await work
            if isinstance(outcome, InputRequired) and self._wished:
                return await self._promises.go_on(self._call, self._tool, self._call.journal)
            return outcome
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            wanted.cancel()
            self._settle()

    async def _promise(self, work: asyncio.Task[Any], limits: Limits) -> Promise | None:
        """Make the promise; `None` if that cannot be done, and the call goes on as an answer."""
        call = self._call
        journal = call.journal if call.journal is not None else Journal()
        created: asyncio.Future[ClaimedTask | None] = asyncio.get_running_loop().create_future()

        async def write(new: dict[str, Any]) -> None:
            held = await asyncio.shield(created)
            if held is not None:
                await held.write("recorded", {"journal": new})

        snapshot = journal.hand_over(write)
        before = call.emissions or call.begin_to_emit(journal, limits)
        emitted = before.so_far()
        call.emissions = after = _LateOutput(before, len(emitted), created)
        try:
            held = await self._promises.create(call, self._tool, snapshot, run=False, emitted=emitted)
        except (RequestError, StoreError) as error:
            logger.warning("Request %r goes on as an answer: %s", call.id, error)
            journal.take_back()
            created.set_result(None)
            await after.flush()
            call.emissions = before
            return None
        assert isinstance(held, ClaimedTask)
        held.journal = journal
        call.carrier = StoreCarrier()
        call.let_go()
        call.task_id = held.task.id
        created.set_result(held)
        self._promises.worker.adopt(held, asyncio.create_task(self._finish(work, held)))
        return Promise(held.task)

    async def _finish(self, work: asyncio.Task[Any], held: ClaimedTask) -> None:
        try:
            try:
                outcome = await work
            except RequestError as error:
                outcome = error
            await self._promises.worker.finish(held, outcome)
        except (LeaseLost, AntiphonError) as error:
            logger.info("The task %s was let go: %s", held.task.id, error)
        except asyncio.CancelledError:
            work.cancel()
            raise

    async def _turn(self) -> None:
        self._wanted.set()
        await asyncio.shield(self._settled)

    def _settle(self) -> None:
        if not self._settled.done():
            self._settled.set_result(None)


class _LateOutput(LoggedOutput):
    """Segments from the turn on: the task's, or the answer's after all, if there comes to be no task."""

    def __init__(
        self, before: OutputStream, already: int, created: asyncio.Future[ClaimedTask | None]
    ) -> None:
        super().__init__(self._emit, already=already, emitted=already)
        self._before = before
        self._created = created

    async def rest(self) -> list[Block]:
        """What is not in the log yet; without a task, all there is."""
        rest = await super().rest()
        if await asyncio.shield(self._created) is not None:
            return rest
        return [*await self._before.rest(), *rest]

    async def _emit(self, first: int, blocks: Sequence[Any]) -> None:
        held = await asyncio.shield(self._created)
        await (self._before.emit(blocks) if held is None else held.emit(first, blocks))


class _ConvertibleCall(Call[CallTool]):
    """A call that says things to its caller until that has a promise, and to nobody from then on."""

    def __init__(self, call: Call[CallTool]) -> None:
        self.request, self.id, self.request_meta = call.request, call.id, call.request_meta
        self.principal, self.peer, self.started = call.principal, call.peer, call.started
        self.rounds, self.can_ask = call.rounds, call.can_ask
        self._caller: Call[CallTool] | None = call

    def let_go(self) -> None:
        """The caller has its promise."""
        self._caller = None
        self.rounds, self.can_ask, self.turn = True, False, None

    @property
    def streams(self) -> bool:
        """Whether the caller wants what is emitted as it comes; with a promise it asks for it anew."""
        return self._caller is not None and self._caller.streams

    def begin_to_emit(self, journal: Journal, limits: Limits) -> OutputStream:
        """Segments go where the caller's go, until it has a promise."""
        assert self._caller is not None  # from the turn on, there are emissions already
        self._caller.emissions = emissions = super().begin_to_emit(journal, limits)
        return emissions

    async def notify(self, notification: CallerMessage) -> None:
        """Say something meanwhile."""
        if self._caller is not None:
            await self._caller.notify(notification)

    async def ask(self, key: str, ask: Question, task_id: str | None = None) -> Any:
        """Put a question, and wait for the answer."""
        assert self._caller is not None
        return await self._caller.ask(key, ask, task_id)
