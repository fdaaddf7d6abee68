"""One run of an author's function against a journal.

Owns the open questions of the run, and stops the run at them. A question that the journal cannot answer
goes to the carrier of the call, which gets the answer or stops the run; this module does not know which
carrier it is.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, TypeVar

from antiphon.backoff import Backoff
from antiphon.errors import ReplayMismatch, StoreError, StoreUnavailable
from antiphon.instrumentation import add_event
from antiphon.model.identity import Principal
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Question, question_key, read_answer, with_problem
from antiphon.model.task import ANSWER_KIND, answer_entry, others_entry, question_kind
from antiphon.model.waiting import Wait
from antiphon.runtime.artifacts.artifact import Artifact
from antiphon.runtime.authoring.results import blocks
from antiphon.runtime.authoring.step import Step
from antiphon.runtime.carriers.base import GATHER_TURNS, Check
from antiphon.runtime.execution.activity import Activity
from antiphon.runtime.execution.asking import QuestionDeadline, require, unused_answers
from antiphon.runtime.execution.branches import Branch, branch_key, next_key
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.failures import UNSAFE_IN_TASKS, StopSignal, as_exception
from antiphon.runtime.execution.fingerprints import StepPrint, fingerprint_key, question_print, used_key
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.execution.nested_steps import NESTED_KIND, current_step, run_nested_step
from antiphon.runtime.execution.recorded import find_answer, find_step, read_new, read_recorded
from antiphon.runtime.execution.replay import Replay
from antiphon.runtime.execution.step_attempts import Attempt, StepAttempts
from antiphon.runtime.limits import Limits

__all__ = ["Run", "Shed", "Suspended", "outlast"]

T = TypeVar("T")
Shed: TypeAlias = Callable[[float], bool]
"""Returns whether to hand a call back to its caller, given the seconds spent in it."""

_ANSWER_PREFIX = answer_entry("")
REPLAY_ENTRIES = 100
"""How many entries of the journal are replayed before the event loop runs other tasks."""

STORE_OUTAGE_SECONDS = 600.0
"""How long a run waits for a store that does not respond.

Not a setting: as long as the writes of a task wait, which know the lease.
"""

_in_own_thread: contextvars.ContextVar[bool] = contextvars.ContextVar("antiphon_own_thread", default=False)
"""Whether a function that is not `async` acts itself, and not a thread that it started."""


async def outlast(operation: Callable[[], Awaitable[T]]) -> T:
    """Return what an operation of a store returns, which is tried again while the store is away."""
    backoff = Backoff(timeout=STORE_OUTAGE_SECONDS)
    while True:
        try:
            return await operation()
        except StoreUnavailable as error:
            await backoff.wait(error)


class Suspended(StopSignal):
    """Unwinds a function that is not `async`, as a cancellation unwinds one that is."""


class Run:
    """One run of a function, from its beginning to its end or to a question."""

    __slots__ = (
        "_activity",
        "_attempts",
        "_has_cancelled",
        "_limits",
        "_questions",
        "_replayed",
        "_root",
        "_shed",
        "_waits",
        "abandoned",
        "answerers",
        "call",
        "journal",
        "last",
        "lost",
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
        self.lost: StoreError | None = None
        """Why the run goes on nowhere here: the store stays away, or another process has the task."""
        self._has_cancelled = False
        self.threaded = False
        self.replay = Replay(journal.entries, diverged=journal.has_returned) if journal.entries else None
        """Compares the run with earlier ones; `None` in the first run of a call."""
        self.mismatch: ReplayMismatch | None = None
        """Why the run was stopped, if the journal does not fit the function."""
        self.answerers: dict[str, Sequence[Principal]] | None = None
        """Whose answers this run has accepted, by the key of the question; `None` before the first."""
        self._attempts: StepAttempts | None = None
        self._limits = limits
        self._shed = shed
        self._questions: dict[str, Question] = {}
        self._waits: dict[str, Wait] = {}
        self._activity: Activity | None = None
        self._replayed = 0
        self._root: Branch | None = None

    @property
    def activity(self) -> Activity:
        """What goes on in the run beside its waits."""
        self._activity = activity = self._activity or Activity()
        return activity

    # Asking

    async def ask(
        self,
        question: Question,
        key: str | None,
        check: Check | None = None,
        deadline: QuestionDeadline | None = None,
    ) -> Any:
        """Return the answer to a question: from the journal, from the request, or through the carrier.

        If `check` finds a problem with an answer, the question is asked again under the same key, and names
        the problem. Raises `InvalidParams` for a response that does not answer this kind of question.
        """
        self._check_running()
        if current_step.get() is not None:
            raise RuntimeError("A step cannot ask: ask first, and pass the answer to the step.")
        name, call = key or question_key(question), self.call
        is_sequential = self._is_sequential
        entry = self.journal.take_key(ANSWER_KIND, name) if is_sequential else None
        if entry is None:
            entry = await branch_key(self, ANSWER_KIND, name)
        key = entry.removeprefix(_ANSWER_PREFIX)
        if deadline is not None:
            deadline.check(key)
        tried: tuple[str, ...] = (key,)
        problem: str | None = None
        if self.journal.find(entry) is not MISSING:
            answer, problem, tried = find_answer(self, question, key, check)
            if problem is None:
                self._use_answer(key, call.principal)
                await self.yield_in_replay()
                return answer
        self._check_asked(key, question)
        require(question, call)
        self._note_print(entry, question_print(question))
        if self.responses:
            for given in tried:
                response = self.responses.get(given, MISSING)
                if response is MISSING or response == self.journal.find(answer_entry(given)):
                    continue
                answer = read_answer(question, given, response)
                problem = None if check is None else check(answer)
                if problem is None:
                    self.record_answer(key, response)
                    self._use_answer(key, call.principal)
                    return answer
        if (confirming := call.carrier.confirm()) is not None:
            await self.confirm(confirming)
        if deadline is not None:
            self._waits[key] = await deadline.wait(key)
        add_event("antiphon.question", {"antiphon.question.kind": question_kind(question)})
        if problem is not None:
            question = with_problem(question, problem)
        asking = call.carrier.ask(self, key, question, check)
        if asking is None:
            self._questions[key] = question
            if (
                is_sequential
                and (self._activity is None or self._activity.is_idle)
                and call.carrier.parking is None
                and not self.threaded
            ):
                # What the function started beside can ask in the next round. A task has to be woken for that.
                self.suspending = True
                raise asyncio.CancelledError
            await self._wait_to_stop(key)
        with self._unwinding():
            answer = await asking
        self._use_answer(key, call.principal)
        return answer

    def _use_answer(self, key: str, principal: Principal) -> None:
        self.note_answerers(key, (principal,))
        self.note_used(answer_entry(key))

    async def question_key(self, name: str) -> str:
        """Return the key of the next question of this name in the current branch."""
        return (await next_key(self, ANSWER_KIND, name)).removeprefix(_ANSWER_PREFIX)

    def note_answerers(self, key: str, principals: Sequence[Principal]) -> None:
        """Note whose answers to a question this run has accepted."""
        if self.answerers is None:
            self.answerers = {}
        self.answerers[key] = principals

    def note_used(self, entry: str, which: Any = True) -> None:
        """Note that the function goes on with a recorded answer, or with some: every later run has to."""
        entries, mark = self.journal.entries, used_key(entry)
        if entry in entries and mark not in entries:
            self.journal.note(mark, which)

    def _check_asked(self, key: str, question: Question) -> None:
        """Stop the run if an earlier one has asked another kind of question under this key."""
        if self.replay is not None:
            try:
                self.replay.check_question(key, question, is_accepted=False)
            except ReplayMismatch as mismatch:
                self.stop_for(mismatch)

    def check_replayed_answer(
        self, key: str, question: Question, *, is_accepted: bool, audience: Sequence[str] = ()
    ) -> None:
        """Note that the run uses a recorded answer; stop the run if it was given to another question.

        `audience` is who can answer, if that is not the caller.
        """
        if self.replay is not None:
            self.replay.use(answer_entry(key))
            try:
                self.replay.check_question(key, question, is_accepted)
                self.replay.check_audience(key, audience)
            except ReplayMismatch as mismatch:
                self.stop_for(mismatch)

    def record_answer(self, key: str, response: Any) -> None:
        """Record the response to a question in the journal."""
        self.journal.record(answer_entry(key), response)
        self.note_progress()
        if self.replay is not None:
            self.replay.use(answer_entry(key))

    async def park(self, key: str, wait: Wait) -> NoReturn:
        """Stop the run of a task until a time, an event or the answer of somebody else."""
        if (confirming := self.call.carrier.confirm()) is not None:
            await self.confirm(confirming)
        self._waits[key] = wait
        add_event("antiphon.wait", {"antiphon.wait.kind": wait.kind})
        await self._wait_to_stop(key)

    async def _wait_to_stop(self, key: str) -> NoReturn:
        """Stop the run at a question or wait, once nothing else of the run goes on."""
        try:
            await self.activity.wait(GATHER_TURNS, self._suspend)
        finally:
            if not self.suspending:  # the function has cancelled the branch that waited, and goes on
                self._questions.pop(key, None)
                self._waits.pop(key, None)
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
            await self.confirm(confirming)
        with self._unwinding(), self.activity:
            await output.emit(emitted)

    # Steps and checkpoints

    async def step(
        self,
        name: str,
        work: Callable[[], Awaitable[Any]],
        step: Step,
        fingerprint: StepPrint,
    ) -> Any:
        """Return the recorded result of a step, or run the step and record its result.

        Stops the run if the journal belongs to another version of the function, see `Replay`. Raises
        `DefinitionError` for a result that cannot be written, or that cannot be read back in any run.
        """
        self._check_running()
        if (outer := current_step.get()) is not None:
            return await run_nested_step(self, outer, name, work, step, fingerprint)
        is_sequential = self._is_sequential
        if not is_sequential:
            _ = self.branch  # the first use of the context counts
        self._attempts = attempts = self._attempts or StepAttempts(self.journal, self.replay)
        attempt = attempts.next(name, fingerprint, is_sequential=is_sequential)
        if self.replay is not None:
            recorded = await find_step(self, self.replay, attempt.key, fingerprint, is_sequential)
            if recorded is not None:
                self.note_progress()
                self.replay.use(recorded)
                await self.yield_in_replay()
                what = f"a result of the step {name!r}"
                return read_recorded(self, recorded, self.journal.find(recorded), step.read, what)
            while attempt.key in self.journal.entries:  # the entry belongs to a step with other arguments
                attempt = attempt.under(self.journal.key("step", name))
        if (confirming := self.call.carrier.confirm()) is not None:
            await self.confirm(confirming)
        self.journal.before_step(attempt.key)
        if not is_sequential:
            await self.settle()
        # Reading the id records it before the step runs, so that the step's idempotency key stays the same.
        _ = self.journal.id
        self.activity.under_way += 1
        token = current_step.set(attempt.identity)
        try:
            data = step.dump(await work())
            value, unreadable = read_new(self, attempt.key, data, step.read)
            self._note_step(attempt, fingerprint, is_sequential)
            self.journal.record(attempt.key, data)
            self.note_progress()
            if self.replay is not None:
                self.replay.use(attempt.key)
                self.replay.diverged |= attempt.had_failed
            await self.commit()
        except BaseException as error:
            # Without its fingerprint, a step that failed would look like a new one in the next run. If the
            # same step comes next, it is another attempt at this one, and the next run makes it only once.
            if self.journal.entries.pop(attempt.key, MISSING) is not MISSING:
                # The run was interrupted while the result was written. The next run may have the result, and
                # then does not take the path that follows here.
                attempt = attempt._replace(had_failed=True)
            self._note_step(attempt, fingerprint, is_sequential)
            attempts.note_failure(name, fingerprint, attempt)
            self.journal.restart_counts(f"{NESTED_KIND}:{attempt.identity}/")
            if isinstance(error, UNSAFE_IN_TASKS) and not self.call.work.is_current:
                # The step runs in an asyncio task that the function started.
                raise as_exception(error) from error
            raise
        finally:
            current_step.reset(token)
            self.activity.end()
        await self.checkpoint()
        if unreadable is not None:
            raise unreadable
        return value

    def note_progress(self) -> None:
        """Note that the run has got an answer or the result of a step."""
        if self._attempts is not None:
            self._attempts.note_progress()

    async def commit(self) -> None:
        """Write the journal; unwind the function if that is not possible any more."""
        with self._unwinding(), self.activity:
            await self.journal.commit()

    async def settle(self) -> None:
        """Settle the journal before a step whose idempotency key depends on its arguments."""
        with self._unwinding(), self.activity:
            await self.journal.settle()
        self._check_running()

    async def yield_in_replay(self) -> None:
        """Let the event loop run after some entries of the journal: a replay has nothing else to wait for."""
        self._replayed += 1
        if self._replayed % REPLAY_ENTRIES == 0:
            with self.activity:
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
            await self.activity.wait(0, self._suspend)

    @property
    def elapsed(self) -> float:
        """The seconds since this request of the call began."""
        return asyncio.get_running_loop().time() - self.call.work.started

    # Replaying

    def note_thread(self, *, is_own: bool) -> None:
        """Note whether the function's own thread acts now: steps of threads that it started have no order."""
        _in_own_thread.set(is_own)
        if not is_own:
            self._function_branch.in_thread()

    @property
    def branch(self) -> str:
        """The path of the branch that acts; empty for the function itself."""
        if self._is_sequential:
            return ""
        root = self._function_branch
        return ((root.inherited() if self.threaded else None) or root.in_task()).path

    @property
    def _function_branch(self) -> Branch:
        if self._root is None:
            self._root = Branch("")
        return self._root

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

    def note_question(self, key: str, question: Question, audience: Sequence[str] = ()) -> None:
        """Note the fingerprint of a question, and who can answer it if that is not the caller."""
        self._note_print(answer_entry(key), question_print(question))
        if audience:
            self._note_print(others_entry(key), list(audience))

    def _note_print(self, entry: str, note: Any) -> None:
        if self.journal.entries.get(noted := fingerprint_key(entry)) != note:
            self.journal.note(noted, note)

    def stop_for(self, mismatch: ReplayMismatch) -> NoReturn:
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
        if self.responses:
            asked = {*self._questions, *self._waits}  # the caller cannot answer for others
            for entry, response in unused_answers(self.responses, asked, self.journal.entries):
                self.journal.record(entry, response)
        stopped = InputRequired(self._questions)
        stopped.waits = self._waits
        return stopped

    def check_outside_step(self, act: str) -> None:
        """Raise `RuntimeError` in a step, and `CancelledError` if the run was stopped."""
        self._check_running()
        if current_step.get() is not None:
            raise RuntimeError(f"A step cannot {act}: do that outside, and pass the value to the step.")

    def _check_running(self) -> None:
        """Raise `CancelledError` if the run was stopped and the function swallowed the cancellation."""
        if self.suspending or self.abandoned:
            raise asyncio.CancelledError

    async def confirm(self, confirming: Awaitable[None]) -> None:
        """Wait for the carrier to confirm that the run may go on; unwind the function if it may not."""
        with self._unwinding(), self.activity:
            await confirming
        self._check_running()

    async def reach(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return what an operation of a store returns. The run waits while the store is away.

        The function is unwound if the store stays away. Writes of the journal wait by themselves.
        """
        with self._unwinding(), self.activity:
            value = await outlast(operation)
        self._check_running()
        return value

    def _unwinding(self) -> _Unwinding:
        """Unwind the function if the store cannot do what the function waits for.

        By a cancellation, because an author's `except Exception` must not take an outage or the loss of the
        task for a failure of the step and go on to the next one. If only a part of the function is here, all
        of it is cancelled.
        """
        return _Unwinding(self)

    def abandon(self, error: StoreError) -> None:
        """Note why the run goes on nowhere here, and cancel the function if only a part of it is here."""
        self.abandoned, self.lost = True, error
        task = self.call.work.task
        if task is not None and task is not asyncio.current_task() and not task.cancelling():
            self._has_cancelled = task.cancel()

    def raise_if_lost(self) -> None:
        """Raise the error that has unwound the function, unless somebody else has cancelled the call too."""
        if self._has_cancelled:
            self._has_cancelled = False
            self.call.work.uncancel()
        if self.lost is not None and not self.call.work.is_cancelled:
            raise self.lost from None

    def _suspend(self) -> None:
        self.suspending = True
        if not self.threaded and self.call.work.task is not None:
            self.call.work.task.cancel()
        self.activity.cancel()


class _Unwinding:
    """Turns an error of the store into the cancellation of a run. A class, because each step enters one."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, StoreError):
            self._run.abandon(error)
            raise asyncio.CancelledError from error
