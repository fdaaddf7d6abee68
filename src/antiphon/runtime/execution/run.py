"""One run of an author's function against a journal.

Owns the open questions of the run, and stops the run at them. A question that the journal cannot answer
goes to the carrier of the call, which gets the answer or stops the run; this module does not know which
carrier it is.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from antiphon.errors import InvalidParams, MissingCapability, StoreError
from antiphon.model.capabilities import can_answer, capabilities_for, needed_capability
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question, question_key, read_answer
from antiphon.model.task import answer_entry
from antiphon.runtime.artifacts.artifact import Artifact
from antiphon.runtime.authoring.results import blocks
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.limits import Limits

__all__ = ["Run", "Shed", "Suspended", "current_step", "require"]

Shed: TypeAlias = Callable[[float], bool]
"""Returns whether to hand a call back to its caller, given the seconds spent in it."""

_GATHER_TURNS = 3
"""How many turns of the event loop a run waits for further questions before it stops at those it has."""
_MAX_UNUSED_BYTES = 4096
"""How many bytes of answers that the run did not use are kept in the journal."""

current_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("antiphon_step", default=None)


class Suspended(BaseException):
    """Unwinds a function that is not `async`, as a cancellation unwinds one that is."""


class Run:
    """One run of a function, from its beginning to its end or to a question."""

    __slots__ = (
        "_futures",
        "_limits",
        "_questions",
        "_running_steps",
        "_shed",
        "_stop_handle",
        "abandoned",
        "call",
        "journal",
        "last",
        "responses",
        "suspending",
        "threaded",
    )

    def __init__(
        self,
        call: Call[Any],
        journal: Journal,
        *,
        limits: Limits,
        shed: Shed | None = None,
        responses: Mapping[str, Any] | None = None,
    ) -> None:
        self.call = call
        self.journal = journal
        self.last: Result | None = None
        """The last `Result` that the function emitted."""
        self.responses: Mapping[str, Any] = call.request.input_responses if responses is None else responses
        self.suspending = False
        """Whether the function is being unwound to wait for an answer."""
        self.abandoned = False
        """Whether the call is over, or lost to another process, although the function still runs."""
        self.threaded = False
        self._limits = limits
        self._shed = shed
        self._questions: dict[str, Question] = {}
        self._futures: set[asyncio.Future[None]] = set()
        self._running_steps = 0
        self._stop_handle: asyncio.Handle | None = None

    # Asking

    async def ask(self, question: Question, key: str | None, check: Check | None = None) -> Any:
        """Return the answer to a question: from the journal, from the request, or through the carrier.

        An answer with which `check` finds something wrong is not accepted, and the question is asked again.
        Raises `InvalidParams` for a response that does not answer this kind of question.
        """
        self._check_running()
        if current_step.get() is not None:
            raise RuntimeError("A step cannot ask: ask first, and pass the answer to the step.")
        first = key = self.journal.question_key(key or question_key(question))
        attempts = 1
        while (recorded := self.journal.find(answer_entry(key))) is not MISSING:
            if (answer := _accepted(question, key, recorded, check)) is not None:
                return answer
            # A key is answered once: asking again needs a new key, or the caller would not answer.
            attempts += 1
            key = f"{first}~{attempts}"
        require(question, self.call)
        if key in self.responses:
            answer = read_answer(question, key, self.responses[key])
            if check is None or check(answer) is None:
                self.record_answer(key, self.responses[key])
                return answer
        if (confirming := self.call.carrier.confirm()) is not None:
            await self._confirm(confirming)
        return await self.call.carrier.ask(self, key, question, check)

    def record_answer(self, key: str, response: Any) -> None:
        """Record the response to a question in the journal."""
        self.journal.record(answer_entry(key), response)

    async def suspend(self, key: str, question: Question) -> NoReturn:
        """Stop the run at a question, together with others that are asked in the same moment."""
        self._questions[key] = question
        if not self._futures and self._running_steps == 0 and asyncio.current_task() is self.call.work.task:
            # The function itself asks, not something that it started concurrently: no other question can
            # come in this moment, so there is nothing to wait for.
            self.suspending = True
            raise asyncio.CancelledError
        await self._stop_after(_GATHER_TURNS)
        raise AssertionError("the run was stopped; another run gets the answer")

    # Emitting

    async def emit(self, value: Any) -> None:
        """Send a part of the result to the caller; a `Result` can carry data and an artifact too."""
        self._check_running()
        if current_step.get() is not None:
            raise RuntimeError("A step cannot emit: return the value, and emit it outside the step.")
        if isinstance(value, Artifact):
            value = Result(artifact=value)
        if type(value) is Result:
            if self.last is not None and self.last.artifact is not None and value.artifact is not None:
                raise RuntimeError(
                    "A call returns one artifact: put everything that belongs together into it."
                )
            self.last = value
            emitted = value.content
        else:
            emitted = blocks(value)
        output = self.call.output
        if output is None:
            output = self.call.open_output(self.journal, self._limits)
        if not output.replays and (confirming := self.call.carrier.confirm()) is not None:
            await self._confirm(confirming)
        try:
            await output.emit(emitted)
        except StoreError as error:
            raise self._abandon() from error

    # Steps and checkpoints

    async def step(self, key: str, work: Callable[[], Awaitable[Any]], dump: Callable[[Any], Any]) -> Any:
        """Return the recorded result of a step, or run the step and record its result."""
        self._check_running()
        recorded = self.journal.find(key)
        if recorded is not MISSING:
            return recorded
        if (confirming := self.call.carrier.confirm()) is not None:
            await self._confirm(confirming)
        # Reading the id records it before the step runs, so that the step's idempotency key stays the same.
        _ = self.journal.id
        self._running_steps += 1
        token = current_step.set(key)
        try:
            value = dump(await work())
            self.journal.record(key, value)
            try:
                await self.journal.commit()
            except StoreError as error:
                raise self._abandon() from error
        finally:
            current_step.reset(token)
            self._running_steps -= 1
            if self._futures:
                self._schedule_stop(_GATHER_TURNS)
        await self.checkpoint()
        return value

    async def checkpoint(self) -> None:
        """Hand the call back to the caller if the server sheds load.

        Only if the run has recorded something, so that every round makes progress.
        """
        self._check_running()
        if (
            self._shed is not None
            and self.call.carrier.sheds
            and self.journal.grown
            and self._shed(self.elapsed)
        ):
            await self._stop_after(0)

    @property
    def elapsed(self) -> float:
        """The seconds since this request of the call began."""
        return asyncio.get_running_loop().time() - self.call.work.started

    # Stopping

    def outcome(self) -> InputRequired:
        """Return the outcome of a run that was stopped.

        Answers that the run did not use are kept if they are small: during a rollout, the next round may
        reach the version that asked for them.
        """
        unused = {
            answer_entry(key): response
            for key, response in self.responses.items()
            if key not in self._questions and answer_entry(key) not in self.journal.entries
        }
        if unused and len(msgspec.json.encode(unused)) <= _MAX_UNUSED_BYTES:
            for entry, response in unused.items():
                self.journal.record(entry, response)
        return InputRequired(self._questions)

    def _check_running(self) -> None:
        """Raise `CancelledError` if the run was stopped and the function swallowed the cancellation."""
        if self.suspending or self.abandoned:
            raise asyncio.CancelledError

    async def _confirm(self, confirming: Awaitable[None]) -> None:
        """Wait for the carrier to confirm that the run may go on; unwind the function if it may not."""
        try:
            await confirming
        except StoreError as error:
            raise self._abandon() from error
        self._check_running()

    def _abandon(self) -> asyncio.CancelledError:
        """Return the error that unwinds a function whose journal cannot be written any more.

        A cancellation, because an author's `except Exception` must not take it for a failure of the step and
        go on to the next one. If only a part of the function is here, all of it is cancelled.
        """
        self.abandoned = True
        task = self.call.work.task
        if task is not None and task is not asyncio.current_task() and not task.cancelling():
            task.cancel()
        return asyncio.CancelledError()

    async def _stop_after(self, turns: int) -> None:
        """Wait to be cancelled: the run stops after some turns of the event loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        self._schedule_stop(turns)
        await future

    def _schedule_stop(self, turns: int) -> None:
        """Stop the run after some turns of the event loop, unless a step still runs by then."""
        if self._stop_handle is not None:
            self._stop_handle.cancel()
        self._stop_handle = asyncio.get_running_loop().call_soon(self._turn, turns)

    def _turn(self, turns: int) -> None:
        if turns > 0:
            self._stop_handle = asyncio.get_running_loop().call_soon(self._turn, turns - 1)
        elif self._running_steps == 0:
            self._suspend()

    def _suspend(self) -> None:
        self.suspending = True
        if not self.threaded and self.call.work.task is not None:
            self.call.work.task.cancel()
        for future in self._futures:
            future.cancel()


def _accepted(question: Question, key: str, response: Any, check: Check | None) -> Any:
    """Return the answer in a recorded response, or `None` if the response does not fit."""
    try:
        answer = read_answer(question, key, response)
    except InvalidParams:
        return None
    return answer if check is None or check(answer) is None else None


def require(question: Question, call: Call[Any]) -> None:
    """Raise `MissingCapability` if the client did not declare that it can answer a question.

    A question of a task is never refused: the task waits, and any client of its owner can answer.
    """
    if call.carrier.anyone_answers or can_answer(call.request_meta.capabilities, question):
        return
    name, mode = needed_capability(question)
    what = name if mode is None else f"{name} ({mode})"
    raise MissingCapability(
        f"This needs a client that can do {what}, and this one did not declare it.",
        needs=capabilities_for(type(question)),
    )
