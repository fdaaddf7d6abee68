"""Runs an author's function: binds its arguments, passes its context, and runs it through its rounds.

The same for tools, prompts and resources. `Environment` is what all runs of one server share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from antiphon.errors import Failure, LeaseLost, StoreUnavailable
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import place_answers
from antiphon.runtime.artifacts.artifact import takes_artifacts
from antiphon.runtime.authoring.dependencies import DependencyOverrides
from antiphon.runtime.authoring.signature import Signature
from antiphon.runtime.execution.asking import require
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.executor import (
    ThreadExecutor,
    Threads,
    as_async,
    as_emitter,
    is_async,
    share_threads,
)
from antiphon.runtime.execution.failures import SelfCancelled
from antiphon.runtime.execution.injection import Injection
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import OutputStream
from antiphon.runtime.execution.run import Run, Shed, Suspended
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.service import ArtifactService
    from antiphon.runtime.held.registry import HeldRuns

__all__ = ["AuthorFunction", "Environment"]


MAX_RUNS = 1000
"""How often a function may return `InputRequired` in one call, on a connection where the call waits."""


@dataclass(slots=True)
class Environment:
    """The objects that all runs of one server share. The engine owns it."""

    threads: ThreadExecutor
    limits: Limits = Limits()  # noqa: RUF009 - it is frozen
    shed: Shed | None = None
    artifacts: ArtifactService | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    held_runs: HeldRuns | None = None
    """The runs of functions that are not run again, while their callers are asked."""
    lifespan: Any = None
    """The value that the server's lifespan yielded, set while the server runs."""
    dependency_overrides: DependencyOverrides = field(default_factory=lambda: DependencyOverrides(Context))
    """The functions that replace dependencies, in tests."""
    closing: set[asyncio.Task[None]] = field(default_factory=set)
    """Close the dependencies of calls that were stopped, as soon as their functions have returned."""


class AuthorFunction:
    """An author's function with its signature, ready to run."""

    __slots__ = (
        "_context",
        "_generate",
        "_injection",
        "bind",
        "invoke",
        "is_threaded",
        "names",
        "replays",
        "signature",
        "takes_artifacts",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        threads: ThreadExecutor,
        *,
        may_emit: bool = False,
        replay: bool = True,
    ) -> None:
        self.signature = Signature.of(function, Context)
        self.bind = self.signature.binder()
        self.names = self.signature.names
        self.takes_artifacts = any(takes_artifacts(hint) for hint in self.signature.parameters.values())
        needed = self.signature.dependencies
        has_context = self.signature.context is not None or bool(needed)
        may_wait = not replay and has_context  # for an answer, and for long
        runner: Threads = threads.apart if may_wait else threads
        self._generate = as_emitter(function, runner) if may_emit else None
        self.invoke = as_async(function, runner) if self._generate is None else function
        self._injection = Injection(function, needed, runner, may_emit=may_emit) if needed else None
        self._context = self.signature.context
        self.is_threaded = not is_async(function)
        """Whether the function runs in a thread."""
        self.replays = replay
        """Whether the function may be run again. If not, its runs are held in the process."""

    @property
    def emits(self) -> bool:
        """Whether the function is a generator."""
        return self._generate is not None

    @property
    def takes_context(self) -> bool:
        """Whether the function or a dependency may get a `Context`, or is a generator.

        Only then a run can stop in it.
        """
        return self._context is not None or self._generate is not None or self._injection is not None

    @property
    def has_dependencies(self) -> bool:
        """Whether the function has dependencies."""
        return self._injection is not None

    def holds(self, call: Call[Any]) -> bool:
        """Return whether the process has to hold the run of a call, because a question ends the request."""
        return (
            not self.replays
            and self.takes_context
            and call.carrier.returns_questions
            and call.task_id is None
        )

    async def run(self, call: Call[Any], arguments: dict[str, Any], environment: Environment) -> Any:
        """Run the function; return its value, or the `InputRequired` that it stopped with."""
        carrier, artifacts = call.carrier, environment.artifacts if self.takes_artifacts else None
        if self.is_threaded or self._injection is not None:
            share_threads(call.principal.share)
        if not self.takes_context and artifacts is None:
            if call.request.request_state is not None:
                await carrier.open(call)  # a state that does not open is refused, used or not
            return await self.invoke(**arguments)
        journal = await carrier.open(call)
        # A caller whose answers have no keys cannot be told to make the call again without a question.
        shed = environment.shed if call.request_meta.answers is None else None
        answers = None if call.request.input_responses else call.request_meta.answers
        run = Run(call, journal, limits=environment.limits, shed=shed)
        if artifacts is not None:
            arguments = await artifacts.resolve(arguments, call, run)
        for _ in range(MAX_RUNS):
            value = await self.run_once(run, arguments, Context(run, environment))
            if type(value) is not InputRequired:
                return value
            if call.output is not None:
                await _flush(call.output, journal)
            closed: InputRequired | Mapping[str, Any]
            if answers:  # only now it is known what they answer
                closed, answers = place_answers(value.questions, answers), None
                call.request = msgspec.structs.replace(call.request, input_responses=closed)
            else:
                closed = await carrier.close(call, journal, value)
            if isinstance(closed, InputRequired):
                return closed
            if call.output is not None:
                await call.output.restart()
            journal.restart_counts()
            run = Run(call, journal, limits=environment.limits, responses=closed)
        raise Failure(f"The function returned InputRequired {MAX_RUNS} times in one call.")

    async def run_once(self, run: Run, arguments: dict[str, Any], context: Context) -> Any:
        """Run the function once, to its end or to where it stops."""
        if self._context is not None:
            arguments[self._context] = context
        run.threaded = self.is_threaded
        work = run.call.work
        try:
            if self._injection is not None:
                value = await self._injection.call(run, arguments, context)
            elif self._generate is None:
                value = await self.invoke(**arguments)
            else:
                value = await self._generate(run.emit, arguments)
        except asyncio.CancelledError:
            if run.suspending and work.stop_reason is None:
                work.uncancel()
                return run.outcome()
            was_lost, run.abandoned = run.abandoned, True
            run.raise_if_lost()  # then the cancellation is ours, and no error of the function
            if not was_lost and not work.is_cancelled:
                raise SelfCancelled from None
            raise
        except Suspended:
            run.raise_if_lost()
            if run.abandoned:
                raise asyncio.CancelledError from None
            if not run.suspending:
                raise SelfCancelled from None
            return run.outcome()
        except BaseException:
            if run.suspending and not run.threaded:
                work.uncancel()
            if isinstance(run.lost, LeaseLost | StoreUnavailable):
                run.raise_if_lost()  # in place of an error of the function as it unwound
            if run.mismatch is not None:
                raise run.mismatch from None
            raise
        run.raise_if_lost()
        if run.suspending:  # the function swallowed the cancellation, and returned
            if not run.threaded:
                work.uncancel()
            return run.outcome()
        if type(value) is InputRequired:
            _check(run, value)
            return value
        if run.replay is not None and not run.journal.has_returned:
            run.replay.warn_unused(run.call.id)
        if value is None and run.last is not None:
            last = run.last
            data = last.data if last.structured else UNSET
            return Result(data=data, meta=last.meta, artifact=last.artifact, is_error=last.is_error)
        return value


def _check(run: Run, stopped: InputRequired) -> None:
    """Check an `InputRequired` that the function returned itself, and record its state.

    Raises `MissingCapability` if the client cannot answer.
    """
    for question in stopped.questions.values():
        require(question, run.call)
    if stopped.state is not None:
        run.journal.state = stopped.state
    run.journal.note_returned()


async def _flush(output: OutputStream, journal: Journal) -> None:
    """Send what was emitted before the question, and record how much, so that no segment is sent twice."""
    await output.flush()
    if output.sent:
        journal.segments = output.sent
