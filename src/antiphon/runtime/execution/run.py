"""One run of an author's function against a journal.

Owns the open questions of the run, and stops the run at them. A question that the journal cannot answer
goes to the carrier of the call, which gets the answer or stops the run; this module does not know which
carrier it is.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from antiphon.errors import InvalidParams, MissingCapability, ReplayMismatch, StoreError
from antiphon.model.capabilities import can_answer, capabilities_for, needed_capability
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question, question_key, read_answer, with_problem
from antiphon.model.task import answer_entry
from antiphon.runtime.artifacts.artifact import Artifact
from antiphon.runtime.authoring.results import blocks
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.failures import UNSAFE_IN_TASKS, StopSignal, as_exception
from antiphon.runtime.execution.fingerprints import StepPrint, fingerprint_key, question_print
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.execution.replay import Replay
from antiphon.runtime.execution.step_attempts import Attempt, StepAttempts
from antiphon.runtime.limits import Limits

__all__ = ["Run", "Shed", "Suspended", "current_step", "require"]

logger = logging.getLogger("antiphon")

Shed: TypeAlias = Callable[[float], bool]
"""Returns whether to hand a call back to its caller, given the seconds spent in it."""

_GATHER_TURNS = 3
"""How many turns of the event loop a run waits for further questions before it stops at those it has."""
_NESTED_KIND = "nested"
"""The prefix of steps inside other steps. It never changes: logs and request states contain it."""
_REPLAY_ENTRIES = 100
"""How many entries of the journal are replayed before the event loop runs other tasks."""
_MAX_UNUSED_BYTES = 4096
"""How many bytes of answers that the run did not use are kept in the journal."""

current_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("antiphon_step", default=None)
_in_own_thread: contextvars.ContextVar[bool] = contextvars.ContextVar("antiphon_own_thread", default=False)
"""Whether a function that is not `async` acts itself, and not a thread that it started."""


class Suspended(StopSignal):
    """Unwinds a function that is not `async`, as a cancellation unwinds one that is."""


class Run:
    """One run of a function, from its beginning to its end or to a question."""

    __slots__ = (
        "_attempts",
        "_futures",
        "_limits",
        "_questions",
        "_replayed",
        "_running_steps",
        "_shed",
        "_stop_handle",
        "abandoned",
        "call",
        "journal",
        "last",
        "mismatch",
        "replay",
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
        self.replay = Replay(journal.entries, diverged=journal.has_returned) if journal.entries else None
        """Compares the run with earlier ones; `None` in the first run of a call."""
        self.mismatch: ReplayMismatch | None = None
        """Why the run was stopped, if the journal does not fit the function."""
        self._attempts = StepAttempts(journal, self.replay)
        self._limits = limits
        self._shed = shed
        self._questions: dict[str, Question] = {}
        self._futures: set[asyncio.Future[None]] = set()
        self._running_steps = 0
        self._replayed = 0
        self._stop_handle: asyncio.Handle | None = None

    # Asking

    async def ask(self, question: Question, key: str | None, check: Check | None = None) -> Any:
        """Return the answer to a question: from the journal, from the request, or through the carrier.

        An answer with which `check` finds something wrong is not accepted: the question is asked again under
        the same key, and says what was wrong. Raises `InvalidParams` for a response that does not answer this
        kind of question.
        """
        self._check_running()
        if current_step.get() is not None:
            raise RuntimeError("A step cannot ask: ask first, and pass the answer to the step.")
        key = self.journal.question_key(key or question_key(question))
        renamed, attempts, problem = key, 1, None
        while (recorded := self.journal.find(answer_entry(renamed))) is not MISSING:
            answer, problem = _checked(question, renamed, recorded, check)
            self._attempts.note_progress()
            if self.replay is not None:
                self.replay.use(answer_entry(renamed))
                try:
                    self.replay.check_question(renamed, question, problem is None)
                except ReplayMismatch as mismatch:
                    self._stop_at(mismatch)
            if problem is None:
                await self._yield_in_replay()
                return answer
            # Earlier versions asked again under a new key, and their logs and request states contain it.
            attempts += 1
            renamed = f"{key}~{attempts}"
        require(question, self.call)
        self._note_question(key, question)
        for given in (key,) if renamed == key else (key, renamed):
            response = self.responses.get(given)
            if response is None or response == self.journal.find(answer_entry(given)):
                continue
            answer = read_answer(question, given, response)
            problem = None if check is None else check(answer)
            if problem is None:
                self.record_answer(key, response)
                return answer
        if (confirming := self.call.carrier.confirm()) is not None:
            await self._confirm(confirming)
        return await self.call.carrier.ask(self, key, with_problem(question, problem), check)

    def record_answer(self, key: str, response: Any) -> None:
        """Record the response to a question in the journal."""
        self.journal.record(answer_entry(key), response)
        self._attempts.note_progress()
        if self.replay is not None:
            self.replay.use(answer_entry(key))

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

    async def step(
        self,
        name: str,
        work: Callable[[], Awaitable[Any]],
        dump: Callable[[Any], Any],
        fingerprint: StepPrint,
    ) -> Any:
        """Return the recorded result of a step, or run the step and record its result.

        Stops the run if the journal belongs to another version of the function, see `Replay`.
        """
        self._check_running()
        if (outer := current_step.get()) is not None:
            return await self._nested_step(outer, name, work, dump, fingerprint)
        is_sequential = self._is_sequential
        attempt = self._attempts.next(name, fingerprint, is_sequential=is_sequential)
        if self.replay is not None:
            recorded = await self._find_step(self.replay, attempt.key, fingerprint, is_sequential)
            if recorded is not None:
                self._attempts.note_progress()
                self.replay.use(recorded)
                await self._yield_in_replay()
                return self.journal.find(recorded)
            while attempt.key in self.journal.entries:  # the entry belongs to a step with other arguments
                attempt = attempt.under(self.journal.key("step", name))
        if (confirming := self.call.carrier.confirm()) is not None:
            await self._confirm(confirming)
        self.journal.before_step(attempt.key)
        if not is_sequential:
            await self._settle()
        # Reading the id records it before the step runs, so that the step's idempotency key stays the same.
        _ = self.journal.id
        self._running_steps += 1
        token = current_step.set(attempt.identity)
        try:
            value = dump(await work())
            self._note_step(attempt, fingerprint, is_sequential)
            self.journal.record(attempt.key, value)
            self._attempts.note_progress()
            if self.replay is not None:
                self.replay.use(attempt.key)
                self.replay.diverged |= attempt.had_failed
            await self._commit()
        except BaseException as error:
            # Without its fingerprint, a step that failed would look like a new one in the next run. If the
            # same step comes next, it is another attempt at this one, and the next run makes it only once.
            if self.journal.entries.pop(attempt.key, MISSING) is not MISSING:
                # The run was interrupted while the result was written. The next run may have the result, and
                # then does not take the path that follows here.
                attempt = attempt._replace(had_failed=True)
            self._note_step(attempt, fingerprint, is_sequential)
            self._attempts.note_failure(name, fingerprint, attempt)
            self.journal.restart_counts(f"{_NESTED_KIND}:{attempt.identity}/")
            if isinstance(error, UNSAFE_IN_TASKS) and not self.call.work.is_current:
                # The step runs in an asyncio task that the function started.
                raise as_exception(error) from error
            raise
        finally:
            current_step.reset(token)
            self._running_steps -= 1
            if self._futures:
                self._schedule_stop(_GATHER_TURNS)
        await self.checkpoint()
        return value

    async def _nested_step(
        self,
        outer: str,
        name: str,
        work: Callable[[], Awaitable[Any]],
        dump: Callable[[Any], Any],
        fingerprint: StepPrint,
    ) -> Any:
        """Return the recorded result of a step inside another step, or run the step and record its result.

        Once the outer step is recorded, this one is not called again. So it has no place among the steps of
        the function: its key names the outer step and its own arguments.
        """
        path = f"{outer.removeprefix(f'{_NESTED_KIND}:')}/{name}({fingerprint.digest})"
        key = self.journal.key(_NESTED_KIND, path)
        found = self.journal.find(key)
        if found is not MISSING:
            return found
        if (confirming := self.call.carrier.confirm()) is not None:
            await self._confirm(confirming)
        self.journal.before_step(key)
        await self._settle()
        token = current_step.set(key)
        try:
            value = dump(await work())
        finally:
            current_step.reset(token)
        self.journal.record(key, value)
        await self._commit()
        return value

    async def _commit(self) -> None:
        """Write the journal; unwind the function if that is not possible any more."""
        try:
            await self.journal.commit()
        except StoreError as error:
            raise self._abandon() from error

    async def _settle(self) -> None:
        """Settle the journal before a step whose idempotency key depends on its arguments."""
        try:
            await self.journal.settle()
        except StoreError as error:
            raise self._abandon() from error
        self._check_running()

    async def _yield_in_replay(self) -> None:
        """Let the event loop run after some entries of the journal: a replay has nothing else to wait for."""
        self._replayed += 1
        if self._replayed % _REPLAY_ENTRIES == 0:
            await asyncio.sleep(0)

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

    # Replaying

    def note_thread(self, *, is_own: bool) -> None:
        """Note whether the function's own thread acts now: steps of threads that it started have no order."""
        _in_own_thread.set(is_own)

    def warn_unused(self) -> None:
        """Log the entries of earlier runs that a finished run did not use."""
        unused = () if self.replay is None else self.replay.unused()
        if unused:
            logger.warning(
                "Request %r finished without using these entries of its journal: %s. Its function has "
                "changed since they were recorded, or does not take the same path in every run.",
                self.call.id,
                ", ".join(unused),
            )

    @property
    def _is_sequential(self) -> bool:
        """Whether the function itself acts, and not something that it started beside."""
        if self.threaded:
            return _in_own_thread.get()
        return asyncio.current_task() is self.call.work.task

    def _note_step(self, attempt: Attempt, fingerprint: StepPrint, is_sequential: bool) -> None:
        if attempt.had_failed or not is_sequential:
            fingerprint = fingerprint._replace(is_concurrent=not is_sequential, is_retried=attempt.had_failed)
        self.journal.note(fingerprint_key(attempt.key), fingerprint.write(attempt.key))

    def _note_question(self, key: str, question: Question) -> None:
        entry, note = fingerprint_key(answer_entry(key)), question_print(question)
        if self.journal.entries.get(entry) != note:
            self.journal.note(entry, note)

    async def _find_step(
        self, replay: Replay, key: str, fingerprint: StepPrint, is_sequential: bool
    ) -> str | None:
        """Return the key of a recorded step, or `None` if the step is new; stop the run at a mismatch."""
        try:
            return replay.find_step(key, fingerprint, is_sequential=is_sequential)
        except ReplayMismatch as mismatch:
            if mismatch.found == mismatch.recorded:
                self._stop_at(mismatch)
        # A recorded step is due before this one. Something beside may be about to use it.
        for _ in range(_GATHER_TURNS):
            await asyncio.sleep(0)
        try:
            return replay.find_step(key, fingerprint, is_sequential=is_sequential)
        except ReplayMismatch as mismatch:
            if self._running_steps or self._futures:
                return None
            self._stop_at(mismatch)

    def _stop_at(self, mismatch: ReplayMismatch) -> NoReturn:
        """Stop the run. The function is unwound as at a question: it must not take this for its own error."""
        self.mismatch = mismatch
        if asyncio.current_task() is self.call.work.task:
            self.suspending = True
        else:
            self._suspend()
        raise asyncio.CancelledError

    # Stopping

    def outcome(self) -> InputRequired:
        """Return the outcome of a run that was stopped; raises `ReplayMismatch` if that is why.

        Answers that the run did not use are kept, the smallest first, up to a bound: during a rollout, the
        next round may reach the version that asked for them.
        """
        if self.mismatch is not None:
            raise self.mismatch from None
        unused = [
            (len(msgspec.json.encode(response)), answer_entry(key), response)
            for key, response in self.responses.items()
            if key not in self._questions and answer_entry(key) not in self.journal.entries
        ]
        room = _MAX_UNUSED_BYTES
        for size, entry, response in sorted(unused, key=lambda answer: answer[0]):
            room -= len(entry) + size
            if room < 0:
                break
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


def _checked(question: Question, key: str, response: Any, check: Check | None) -> tuple[Any, str | None]:
    """Return the answer in a recorded response, and why it does not fit; `None` if it fits."""
    try:
        answer = read_answer(question, key, response)
    except InvalidParams as error:
        return None, error.message
    return answer, None if check is None else check(answer)


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
