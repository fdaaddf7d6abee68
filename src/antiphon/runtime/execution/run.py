"""One run of an author's function against a journal.

Owns the questions that are open, and the way a run stops at them. A question that the journal cannot
answer goes to whoever carries it: the connection, which brings the answer while the function waits;
or the client, for which the function is unwound and the call ends, to be run again with the answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import Failure, InvalidParams, MissingCapability
from antiphon.model.capabilities import can_answer, capabilities_for, needed_capability
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question, question_key, read_answer
from antiphon.runtime.artifacts.artifact import Artifact
from antiphon.runtime.authoring.results import blocks
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.limits import Limits

__all__ = ["Run", "Shed", "Suspended", "current_step", "require"]

Shed: TypeAlias = Callable[[float], bool]
"""Whether to hand a call back to its caller, given the seconds spent in it."""

_TURNS = 3
"""How many turns of the loop a run waits for more questions before it stops at those it has."""
_TRIES = 10
"""How often a question is put again, on a connection, to a client whose answers do not fit."""

_PATIENCE = 3600.0
"""How long, in seconds, a person may take to answer while a connection is held open."""
_UNUSED = 4096
"""How many bytes of answers that nobody asked for are kept."""

current_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("antiphon_step", default=None)


class Suspended(BaseException):
    """Unwinds a function that is not `async`, where a cancellation unwinds one that is."""


class Run:
    """A function on its way through a journal."""

    __slots__ = (
        "_asks",
        "_futures",
        "_limits",
        "_settling",
        "_shed",
        "_steps",
        "call",
        "journal",
        "last",
        "over",
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
        """What the function emitted as its last word."""
        self._limits = limits
        self.responses: Mapping[str, Any] = call.request.input_responses if responses is None else responses
        self.suspending = False
        self.over = False
        """Whether nobody waits for the function any more; one in a thread does not notice by itself."""
        self.threaded = False
        self._asks: dict[str, Question] = {}
        self._futures: set[asyncio.Future[None]] = set()
        self._steps = 0
        self._settling: asyncio.Handle | None = None
        self._shed = shed

    # Asking

    async def ask(
        self, ask: Question, key: str | None, fits: Callable[[Any], str | None] | None = None
    ) -> Any:
        """The answer to a question, from the journal or from the caller.

        `fits` says what is wrong with an answer; one with which something is wrong is not accepted.
        Raises `InvalidParams` for a response that answers no question of this kind.
        """
        self._go_on()
        if current_step.get() is not None:
            raise RuntimeError("A step cannot ask: ask first, and hand the answer to the step.")
        first = name = self.journal.key("ask", key or question_key(ask)).removeprefix("ask:")
        tries = 1
        while (recorded := self.journal.find(f"ask:{name}")) is not MISSING:
            if (answer := _fitting(ask, name, recorded, fits)) is not None:
                return answer
            # A key that was answered is not used again: its caller has done with it.
            tries += 1
            name = f"{first}~{tries}"
        entry = f"ask:{name}"
        require(ask, self.call.request_meta.capabilities)
        if name in self.responses:
            answer = read_answer(ask, name, self.responses[name])
            if fits is None or fits(answer) is None:
                self.journal.record(entry, self.responses[name])
                return answer
        if self.call.can_ask:
            return await self._ask_now(ask, name, fits)
        if not self.call.rounds:
            raise Failure(
                "This needs an answer of the caller's, and there is no way to ask for it on this connection."
            )
        await self._wait_for_the_next_round(name, ask)
        raise AssertionError("a question that was put to the client is answered in another run")

    async def _ask_now(self, ask: Question, name: str, fits: Callable[[Any], str | None] | None) -> Any:
        for _ in range(_TRIES):
            response = await self._put(name, ask)
            answer = read_answer(ask, name, response)
            if fits is None or (problem := fits(answer)) is None:
                self.journal.record(f"ask:{name}", response)
                return answer
        raise Failure(f"No answer to {name!r} fits what was asked for: {problem}.")

    async def _put(self, name: str, ask: Question) -> Any:
        """Put a question on the connection. The time that a person takes is not the tool's."""
        call, loop = self.call, asyncio.get_running_loop()
        if call.emissions is not None:
            await call.emissions.flush()
        begun, left = loop.time(), call.deadline
        call.deadline = max(left, begun + _PATIENCE)
        try:
            return await call.ask(name, ask)
        finally:
            call.deadline = left + (loop.time() - begun)

    async def _wait_for_the_next_round(self, name: str, ask: Question) -> None:
        self._asks[name] = ask
        if not self._futures and self._steps == 0 and asyncio.current_task() is self.call.task:
            # Asked by the function itself, and not by something that it has started beside others:
            # nobody else can be asking in this moment, so there is nothing to wait for.
            self.suspending = True
            raise asyncio.CancelledError
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        self._settle(_TURNS)
        await future

    # Emitting

    async def emit(self, value: Any) -> None:
        """Give the caller something of the result already; a `Result` says more than its blocks."""
        self._go_on()
        if current_step.get() is not None:
            raise RuntimeError("A step cannot emit: return it, and emit what the step gave.")
        if isinstance(value, Artifact):
            value = Result(artifact=value)
        if type(value) is Result:
            if self.last is not None and self.last.artifact is not None and value.artifact is not None:
                raise RuntimeError("A call gives one artifact: put what belongs together into it.")
            self.last = value
            emitted = value.content
        else:
            emitted = blocks(value)
        call = self.call
        if call.emissions is None:
            call.emissions = call.begin_to_emit(self.journal, self._limits)
        await call.emissions.emit(emitted)

    # Steps and checkpoints

    async def step(self, key: str, work: Callable[[], Awaitable[Any]], dump: Callable[[Any], Any]) -> Any:
        """What a step gave: recorded before, or done now and recorded."""
        self._go_on()
        recorded = self.journal.find(key)
        if recorded is not MISSING:
            return recorded
        _ = self.journal.id  # so that the key handed to the outside world is the same in every replay
        self._steps += 1
        token = current_step.set(key)
        try:
            value = dump(await work())
            self.journal.record(key, value)
            await self.journal.commit()
        finally:
            current_step.reset(token)
            self._steps -= 1
            if self._futures:
                self._settle(_TURNS)
        await self.checkpoint()
        return value

    async def checkpoint(self) -> None:
        """Hand the call back to the client, to be taken up elsewhere, if the server is told to shed.

        Only where something was recorded since the run began, so that each round gets further.
        """
        self._go_on()
        if (
            self._shed is None
            or not self.call.rounds
            or not self.journal.grown
            or not self._shed(self.elapsed)
        ):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        self._settle(0)
        await future

    @property
    def elapsed(self) -> float:
        """The seconds spent in this call, in this round."""
        return asyncio.get_running_loop().time() - self.call.started

    # Stopping

    def outcome(self) -> InputRequired:
        """How a run that was stopped ends.

        Answers that it had no use for are kept, if they are small: while a new version is rolled out,
        the next round may be served by the version that asked for them.
        """
        unused = {
            f"ask:{key}": response
            for key, response in self.responses.items()
            if key not in self._asks and f"ask:{key}" not in self.journal.entries
        }
        if unused and len(msgspec.json.encode(unused)) <= _UNUSED:
            for entry, response in unused.items():
                self.journal.record(entry, response)
        return InputRequired(self._asks)

    def _go_on(self) -> None:
        """Raise, if the run was stopped and the function did not notice."""
        if self.suspending or self.over:
            raise asyncio.CancelledError

    def _settle(self, turns: int) -> None:
        """Stop the run after some turns of the loop, unless there is more to wait for by then."""
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_soon(self._turn, turns)

    def _turn(self, turns: int) -> None:
        if turns > 0:
            self._settling = asyncio.get_running_loop().call_soon(self._turn, turns - 1)
        elif self._steps == 0:
            self._suspend()

    def _suspend(self) -> None:
        self.suspending = True
        if not self.threaded and self.call.task is not None:
            self.call.task.cancel()
        for future in self._futures:
            future.cancel()


def _fitting(ask: Question, name: str, response: Any, fits: Callable[[Any], str | None] | None) -> Any:
    """The answer in a response, or `None` if it is of another kind or does not fit."""
    try:
        answer = read_answer(ask, name, response)
    except InvalidParams:
        return None
    return answer if fits is None or fits(answer) is None else None


def require(ask: Question, capabilities: Mapping[str, Any]) -> None:
    """Raise `MissingCapability` for a question that the client cannot answer."""
    if can_answer(capabilities, ask):
        return
    name, mode = needed_capability(ask)
    what = name if mode is None else f"{name} ({mode})"
    raise MissingCapability(
        f"This needs a client that can do {what}, and this one did not declare it.",
        needs=capabilities_for(type(ask)),
    )
