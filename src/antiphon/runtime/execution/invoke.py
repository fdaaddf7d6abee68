"""Puts an author's function on: binds its arguments, gives it its context, runs it through its rounds.

Owns the life of one function from registration to a returned value or a pause, for tools, prompts and
resources alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET

from antiphon.errors import DefinitionError
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question
from antiphon.runtime.artifacts.artifact import takes_artifacts
from antiphon.runtime.authoring.signature import Signature
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.executor import ThreadExecutor, awaitable, generating, is_async
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import OutputStream
from antiphon.runtime.execution.run import Run, Shed, Suspended, require
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.service import ArtifactService

__all__ = ["AuthorFunction", "Carrier", "Environment"]


class Carrier(Protocol):
    """Who has the journal while no function runs."""

    async def open(self, call: Call[Any]) -> Journal:
        """The journal of a call; raises `InvalidParams` for one that is not the caller's."""

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Take the journal of a run that stopped; what is returned goes to the caller."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What all runs of one server share."""

    threads: ThreadExecutor
    carrier: Carrier
    limits: Limits = Limits()  # noqa: RUF009 - it is frozen
    shed: Shed | None = None
    lifespan: Any = None
    artifacts: ArtifactService | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)


class AuthorFunction:
    """An author's function, ready to be put on."""

    __slots__ = (
        "_context",
        "_generate",
        "_threaded",
        "bind",
        "invoke",
        "names",
        "signature",
        "takes_artifacts",
    )

    def __init__(
        self, function: Callable[..., Any], threads: ThreadExecutor, *, may_emit: bool = False
    ) -> None:
        self.signature = Signature.of(function, Context)
        self.bind = self.signature.binder()
        self.names = self.signature.names
        self.takes_artifacts = any(takes_artifacts(hint) for hint in self.signature.parameters.values())
        self._generate = generating(function, threads) if may_emit else None
        self.invoke = awaitable(function, threads) if self._generate is None else function
        self._context = self.signature.context
        self._threaded = not is_async(function)

    @property
    def emits(self) -> bool:
        """Whether it is a generator."""
        return self._generate is not None

    async def run(self, call: Call[Any], arguments: dict[str, Any], stage: Environment) -> Any:
        """What the function returned, or the `InputRequired` that it stopped with."""
        if self.takes_artifacts and stage.artifacts is not None:
            arguments = await stage.artifacts.resolve(arguments, call)
        if self._context is None and self._generate is None:
            if call.request.request_state is not None:
                await stage.carrier.open(call)
            return await self.invoke(**arguments)
        journal = call.journal = await stage.carrier.open(call)
        run = Run(call, journal, limits=stage.limits, shed=stage.shed)
        while True:
            value = await self.once(run, arguments, Context(run, stage))
            if type(value) is not InputRequired:
                return value
            if not call.can_ask:
                if call.emissions is not None:
                    await _pause(call.emissions, journal)
                carrier: Carrier = call.carrier or stage.carrier
                return await carrier.close(call, journal, value)
            run = Run(call, journal, limits=stage.limits, responses=await _put(call, value.questions))
            if call.emissions is not None:
                await call.emissions.again()

    async def once(self, run: Run, arguments: dict[str, Any], context: Context) -> Any:
        """One run, to its end or to where it stops."""
        if self._context is not None:
            arguments[self._context] = context
        run.threaded = self._threaded
        call = run.call
        try:
            if self._generate is None:
                value = await self.invoke(**arguments)
            else:
                value = await self._generate(run.emit, arguments)
        except asyncio.CancelledError:
            if not run.suspending or call.stopped is not None:
                run.over = True
                raise
            call.absolve()
            return run.outcome()
        except Suspended:
            return run.outcome()
        except BaseException:
            if run.suspending and not self._threaded:
                call.absolve()
            raise
        if run.suspending:  # the function caught the signal to stop, and went on
            if not self._threaded:
                call.absolve()
            return run.outcome()
        if type(value) is InputRequired:
            _check(run, value)
        elif value is None and run.last is not None:
            last = run.last
            data = last.data if last.structured else UNSET
            return Result(data=data, meta=last.meta, artifact=last.artifact, is_error=last.is_error)
        return value


def _check(run: Run, stopped: InputRequired) -> None:
    """The questions of the explicit style are those that the client can answer, and its state is kept."""
    for ask in stopped.questions.values():
        require(ask, run.call.request_meta.capabilities)
    if stopped.state is not None:
        run.journal.state = stopped.state
    if not stopped.questions and not run.journal.entries:
        raise DefinitionError("InputRequired has questions, or state, or both.")


async def _pause(emissions: OutputStream, journal: Journal) -> None:
    """What was emitted before a question is taken before it, and not sent again after it."""
    await emissions.flush()
    if emissions.sent:
        journal.segments = emissions.sent


async def _put(call: Call[Any], questions: Mapping[str, Question]) -> dict[str, Any]:
    """Put questions of the explicit style to a caller that answers on the connection."""
    if call.emissions is not None:
        await call.emissions.flush()
    answers = await asyncio.gather(*(call.ask(key, ask) for key, ask in questions.items()))
    return dict(zip(questions, answers, strict=True))
