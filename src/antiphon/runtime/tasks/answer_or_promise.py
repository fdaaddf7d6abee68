"""Turns a call into a task in the middle of its run, without the function noticing.

Owns the moment of the conversion: the journal goes from its carrier into the task's log, segments go into
the log too, and the worker supervises the function, which never stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from antiphon.errors import Failure, RequestError, StoreError, StoreUnavailable
from antiphon.model.content import Block
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question
from antiphon.model.request import CallTool
from antiphon.model.segment import CallerMessage
from antiphon.model.task import Promise
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.carriers.base import Carrier, Check, Parking
from antiphon.runtime.carriers.process import ProcessCarrier
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import LoggedOutput, OutputStream
from antiphon.runtime.execution.run import Run, outlast
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.held.bounds import HeldBounds
from antiphon.runtime.limits import Limits
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.held_task import HeldTask, held_bounds
from antiphon.runtime.tasks.parking import TaskParking

if TYPE_CHECKING:
    from antiphon.runtime.tasks.service import TaskService

__all__ = ["AnswerOrPromise"]

logger = logging.getLogger("antiphon")


class AnswerOrPromise:
    """One call that may become a task.

    With `within`, a call that is not done in so many seconds becomes a task, and so does one that asks
    something. Without it, the tool's `answer_within` counts, and questions go to the caller.
    """

    def __init__(
        self, service: TaskService, call: Call[CallTool], tool: Tool, *, within: float | None = None
    ) -> None:
        self._service = service
        self._tool = tool
        self._requested = asyncio.Event()
        self._settled: asyncio.Future[StoreUnavailable | None] = asyncio.get_running_loop().create_future()
        self._was_refused = False
        self._within = tool.answer_within if within is None else within
        self._parks_questions = within is not None
        self._caller = _DetachableCaller(call)
        work = Supervised()
        self._carrier = (
            _ConvertibleCarrier(call.carrier, parks=self._parks_questions)
            if tool.function.replays
            else _HeldConvertibleCarrier(call.carrier, self._convert, work, parks=self._parks_questions)
        )
        work.started = call.work.started
        self._call = Call(
            call.request,
            id=call.id,
            request_meta=call.request_meta,
            # The call may become a task: its function must see the same claims in every run.
            principal=service.kept_principal(call.principal),
            session_state=call.session_state,
            carrier=self._carrier,
            caller=self._caller,
            work=work,
            convert=self._convert,
        )

    async def run(self, environment: Environment) -> Result | InputRequired | Promise:
        """Run the tool: return its answer if it is quick enough, else the promise of a task."""
        work = asyncio.create_task(self._tool.run(self._call, environment))
        self._call.work.task = work
        within: float | None = self._within
        try:
            while await self._becomes_task(work, within):
                promise, within = await self._promise(work, environment), None
                if isinstance(promise, Promise):
                    return promise
                self._refuse(promise)
            outcome = await work
            if isinstance(outcome, InputRequired) and self._parks_questions:
                return await self._service.start_from(self._call, self._tool, self._carrier.journal)
            return outcome
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            self._settled.set_result(None)

    async def _becomes_task(self, work: asyncio.Task[Any], within: float | None) -> bool:
        """Wait until the function has returned, and return false, or until the call has to become a task."""
        requested = asyncio.create_task(self._requested.wait())
        try:
            await asyncio.wait({work, requested}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requested.cancel()
        return not work.done()

    async def _promise(
        self, work: asyncio.Task[Any], environment: Environment
    ) -> Promise | RequestError | StoreError:
        """Create the task and return its promise, or why the call goes on as an answer."""
        call, limits = self._call, environment.limits
        journal = self._carrier.journal if self._carrier.journal is not None else Journal()
        created: asyncio.Future[ClaimedTask | None] = asyncio.get_running_loop().create_future()

        async def write(new: dict[str, Any]) -> None:
            claimed = await asyncio.shield(created)
            if claimed is not None:
                await claimed.write("recorded", {"journal": new})

        # Reading the id records it: every worker derives the same idempotency keys as this run.
        _ = journal.id
        snapshot = journal.attach(write)
        before = call.output or call.open_output(journal, limits)
        emitted = before.emitted()
        after = _LateOutput(before, len(emitted), created, limits.max_task_bytes)
        call.redirect_output(after)
        try:
            claimed = await self._service.create(call, self._tool, snapshot, run=False, emitted=emitted)
        except (RequestError, StoreError) as error:
            if not self._was_refused:
                logger.warning(
                    "Cannot make a task of request %r: %s The call goes on as an answer.", call.id, error
                )
            self._was_refused = True
            journal.detach()
            created.set_result(None)
            await after.flush()
            call.redirect_output(before)
            return error
        assert isinstance(claimed, ClaimedTask)
        claimed.journal = journal
        self._carrier.convert(journal, claimed, held_bounds(environment))
        self._caller.detach(claimed)
        created.set_result(claimed)
        self._service.worker.adopt(claimed, asyncio.create_task(self._finish(work, claimed)))
        return Promise(claimed.task)

    async def _finish(self, work: asyncio.Task[Any], claimed: ClaimedTask) -> None:
        held = self._carrier.held
        try:
            await self._service.worker.supervise(claimed, work if held is None else held.outcome(work))
        except StoreError as error:
            await self._service.worker.retry_later(claimed, self._tool, error)

    async def _convert(self) -> None:
        self._requested.set()
        error = await asyncio.shield(self._settled)
        if error is not None:
            raise error

    def _refuse(self, reason: RequestError | StoreError) -> None:
        """Let the function go on, which may ask once more."""
        settled, self._settled = self._settled, asyncio.get_running_loop().create_future()
        self._requested.clear()
        settled.set_result(reason if isinstance(reason, StoreUnavailable) else None)


class _LateOutput(LoggedOutput):
    """Segments emitted from the conversion on: the task's, or the answer's if the task cannot be created."""

    def __init__(
        self,
        before: OutputStream,
        already: int,
        created: asyncio.Future[ClaimedTask | None],
        max_bytes: int,
    ) -> None:
        super().__init__(
            self._emit, logged=already, emitted=already, max_bytes=max_bytes, emitted_bytes=before.size
        )
        self._before = before
        self._created = created

    async def remaining(self) -> list[Block]:
        """Return the segments that are not in the log yet; all segments if there is no task."""
        rest = await super().remaining()
        if await asyncio.shield(self._created) is not None:
            return rest
        return [*await self._before.remaining(), *rest]

    async def _emit(self, first: int, blocks: Sequence[Any]) -> None:
        claimed = await asyncio.shield(self._created)
        await (self._before.emit(blocks) if claimed is None else claimed.emit(first, blocks))


class _ConvertibleCarrier:
    """Carries the journal as the call's own carrier does, until the store takes over."""

    def __init__(self, carrier: Carrier, *, parks: bool) -> None:
        self._opened_by = carrier
        self._carrier: Carrier = StoreCarrier(Journal()) if parks else carrier
        self.journal: Journal | None = None
        """The journal of the call, once the function runs."""
        self.held: HeldTask | None = None
        """The function of the task, if it must not be run again; `None` until the call is a task."""

    @property
    def returns_questions(self) -> bool:
        """Whether a question ends the request."""
        return self._carrier.returns_questions

    @property
    def sheds(self) -> bool:
        """Whether a busy server may end a run at a checkpoint: not once the call is a task."""
        return self._carrier.sheds

    @property
    def anyone_answers(self) -> bool:
        """Whether other clients can answer a question: once the call is a task, they can."""
        return self._carrier.anyone_answers

    @property
    def parking(self) -> Parking | None:
        """How the run waits without a worker; `None` until the call is a task."""
        return self._carrier.parking

    def convert(self, journal: Journal, claimed: ClaimedTask, bounds: HeldBounds | None) -> None:
        """Let the store carry the journal from now on, in the log of a claimed task."""
        self._carrier = StoreCarrier(journal, claimed.confirm, TaskParking(claimed))

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal that the caller brought along, or a new one."""
        self.journal = await self._opened_by.open(call)
        return self.journal

    def confirm(self) -> Awaitable[None] | None:
        """Make sure that the run may go on, as the current carrier does."""
        return self._carrier.confirm()

    def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Awaitable[Any] | None:
        """Ask through the current carrier."""
        return self._carrier.ask(run, key, question, check)

    async def close(
        self, call: Call[Any], journal: Journal, stopped: InputRequired
    ) -> InputRequired | Mapping[str, Any]:
        """Pass the journal to the current carrier."""
        return await self._carrier.close(call, journal, stopped)


class _HeldConvertibleCarrier(_ConvertibleCarrier):
    """Carries the call of a function that is not run again: it waits in this process, as a task.

    A question that would end the request makes the call a task first. Other questions go to the connection.
    """

    def __init__(
        self, carrier: Carrier, convert: Callable[[], Awaitable[None]], work: Supervised, *, parks: bool
    ) -> None:
        super().__init__(carrier, parks=False)
        self._make_task = convert
        self._work = work
        if parks or carrier.returns_questions:
            self._carrier = ProcessCarrier(self._ask_as_task, anyone_answers=True)

    def convert(self, journal: Journal, claimed: ClaimedTask, bounds: HeldBounds | None) -> None:
        """Ask through the log of a claimed task from now on."""
        self.held = HeldTask(claimed, self._work, bounds)
        self._carrier = self.held.carrier

    async def _ask_as_task(self, key: str, question: Question) -> Any:
        await outlast(self._make_task)
        if self.held is None:
            raise Failure(
                "This needs an answer from the caller, so the call would have to become a task. The server "
                "cannot make a task now: make the call again later."
            )
        return await self.held.ask(key, question)


class _DetachableCaller(Caller):
    """Reaches the caller until the caller has the promise of a task. After that, messages go to the task."""

    def __init__(self, call: Call[CallTool]) -> None:
        self._call: Call[CallTool] | None = call
        self._claimed: ClaimedTask | None = None
        self.takes_streams, self.can_ask = call.caller.takes_streams, call.caller.can_ask

    def detach(self, claimed: ClaimedTask) -> None:
        """Disconnect from the caller: the call is a task now."""
        self._call, self._claimed = None, claimed
        self.task_id = claimed.task.id
        self.takes_streams = self.can_ask = False

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        """Whether this process has released the task, or lost it to another worker."""
        return self._claimed is not None and self._claimed.is_handed_over

    def open_output(self, call: Call[Any], journal: Journal, limits: Limits) -> OutputStream:
        """Send segments where those of the caller's own call go."""
        assert self._call is not None  # after the conversion there is an output already
        output = super().open_output(call, journal, limits)
        self._call.redirect_output(output)
        return output

    async def notify(self, message: CallerMessage) -> None:
        """Send a message to the caller if it still waits, else to the task."""
        if self._call is not None:
            await self._call.caller.notify(message)
        elif self._claimed is not None:
            self._claimed.notify(message)

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        """Ask the caller, which still waits."""
        assert self._call is not None
        return await self._call.caller.ask(key, question, task_id)

    async def close_stream(self) -> None:
        """Release the caller's connection, if it still waits."""
        if self._call is not None:
            await self._call.caller.close_stream()
