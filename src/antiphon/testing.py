"""Tests for tools without a server process: call a tool, answer its questions, and check that it replays.

answers = {"resolution": {"resolution": "Fixed"}}
rehearsal = await rehearse(server, "resolve_bug", {"item": 7}, answers=answers)
assert rehearsal.result.text == "Bug #7 resolved."
assert [question.key for question in rehearsal.questions] == ["resolution"]

assert await check_replay(server, "resolve_bug", {"item": 7}, answers=answers) == []
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec
import pydantic

from antiphon.errors import ReplayMismatch
from antiphon.model.capabilities import ANSWERS_EVERYTHING
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.notification import Notification
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Elicit, OpenUrl, Question
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.segment import CallerMessage, Segments
from antiphon.model.task import HISTORY_FORMAT, TaskChanged, TaskHistory, answer_entry
from antiphon.runtime.authoring.signature import name_of
from antiphon.runtime.carriers.base import Carrier, Check
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.failures import StopSignal
from antiphon.runtime.execution.fingerprints import fingerprint_key
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.execution.run import Run
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.server import Server
from antiphon.wire.questions import write_answer

__all__ = ["AskedQuestion", "Rehearsal", "ReplayedHistory", "check_replay", "rehearse", "replay_history"]

E = TypeVar("E", bound=BaseException)

Answers: TypeAlias = Mapping[str, Any] | Callable[["AskedQuestion"], Any]
"""Answers by the key of the question, or a function that takes a question and returns its answer.

The answer to a form is a mapping, a model, or the bare value if the form has one field. The answer to a
sampling request is a text. The answer to a request for roots is a list. `"decline"` and `"cancel"` stand for
a person who does not answer.
"""

_MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that a tool asked."""

    key: str
    """The key of the question."""
    question: Question
    """The question itself: an `Elicit`, `OpenUrl`, `Sample` or `ListRoots`."""

    @property
    def message(self) -> str:
        """The text that a person reads; empty for `Sample` and `ListRoots`."""
        return self.question.message if isinstance(self.question, Elicit | OpenUrl) else ""


@dataclass(slots=True)
class Rehearsal:
    """The outcome of `rehearse`."""

    result: Result | None = None
    """The result; `None` if the tool waits for answers to the questions in `open`."""
    questions: list[AskedQuestion] = field(default_factory=list)
    """All questions of the tool, in order."""
    open: list[AskedQuestion] = field(default_factory=list)
    """The questions without an answer."""
    rounds: int = 0
    """The number of rounds that the call took."""
    notifications: list[Notification] = field(default_factory=list)
    """The notifications of the tool: progress and log messages."""


async def rehearse(
    target: Server | Callable[..., Any],
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    principal: Principal = ANONYMOUS,
    capabilities: Mapping[str, Any] = ANSWERS_EVERYTHING,
) -> Rehearsal:
    """Call a tool, and answer its questions until it returns a result or asks one without an answer.

    `target` is a function, or a server together with the `name` of a tool. `answers` are the answers by key,
    or a function that takes an `AskedQuestion` and returns its answer. `principal` and `capabilities` are
    those of the simulated client; by default it is anonymous, and answers every kind of question.

    Each round encrypts and decrypts the request state, as a real call does. Raises `RequestError` if the call
    ends with a JSON-RPC error, `ReplayMismatch` if a round does something else than the rounds before, and
    `AssertionError` if the tool still asks after 100 rounds.
    """
    server, tool = _server_and_tool(target, name)
    rehearsal = Rehearsal()
    request = CallTool(name=tool, arguments=dict(arguments or {}))
    async with server.running():
        while rehearsal.rounds < _MAX_ROUNDS:
            rehearsal.rounds += 1
            caller, carrier = _TestCaller(rehearsal), server.engine.client_carrier
            call = _call(request, caller, carrier, rehearsal.rounds, principal, capabilities)
            outcome = await server.engine.handle(call)
            if not isinstance(outcome, InputRequired):
                assert isinstance(outcome, Result)
                rehearsal.result = outcome
                return rehearsal
            asked = [AskedQuestion(key, question) for key, question in outcome.questions.items()]
            rehearsal.questions += asked
            responses = _responses(asked, answers)
            if any(question.key not in responses for question in asked):
                rehearsal.open = [question for question in asked if question.key not in responses]
                return rehearsal
            request = CallTool(
                name=tool,
                arguments=request.arguments,
                input_responses=responses,
                request_state=outcome.sealed,
            )
    raise AssertionError(
        f"The tool {tool!r} still asks after {_MAX_ROUNDS} rounds. "
        f"Its last questions: {[q.key for q in rehearsal.questions[-3:]]}."
    )


async def check_replay(
    target: Server | Callable[..., Any],
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
) -> list[str]:
    """Run a tool, replay it from every point of its journal, and return a description of each difference.

    An empty list means that the tool replays correctly. Steps run once, in the first run. A replay stops as
    soon as it does something that is not in the journal, so it has no side effects. The parameters are those
    of `rehearse`. Raises `AssertionError` if `answers` has no answer to a question.
    """
    server, tool = _server_and_tool(target, name)
    found: list[str] = []
    async with server.running():
        first = _RecordingJournal()
        expected = await _play(server, tool, arguments, answers, first)
        notes = {key: value for key, value in first.entries.items() if _is_note(key)}
        keys = [key for key in first.entries if key not in notes]
        for point in range(len(keys) + 1):
            replay = _PartialJournal(notes | {key: first.entries[key] for key in keys[:point]})
            outcome = await _play(server, tool, arguments, answers, replay)
            where = f"after {keys[point - 1]!r}" if point else "at the start"
            if isinstance(outcome, ReplayMismatch):
                found.append(f"{where}: {outcome}")
            elif replay.reached is None:
                if point < len(keys):
                    found.append(
                        f"{where}: the replay ended, but the first run continued with {keys[point]!r}."
                    )
                elif _describe(outcome) != _describe(expected):
                    found.append(
                        f"at the end: the replay returned {_describe(outcome)}, "
                        f"but the first run {_describe(expected)}."
                    )
            elif replay.reached not in keys[point:]:
                there = repr(keys[point]) if point < len(keys) else "its end"
                found.append(
                    f"{where}: the replay continued with {replay.reached!r}, but the first run with {there}."
                )
    return found


@dataclass(frozen=True, slots=True)
class ReplayedHistory:
    """The outcome of `replay_history`."""

    next: str | None
    """The key of the step or question at which the replay ended; `None` if the tool returned or raised."""
    outcome: Any
    """The value that the tool returned, or the exception that it raised; `None` if it did neither."""
    unused: Sequence[str]
    """The keys of recorded steps and answers that the tool did not use."""


async def replay_history(server: Server, history: str | Path | Mapping[str, Any]) -> ReplayedHistory:
    """Replay the history of a task against the tools of a server. No step runs, and nobody is asked.

    `history` is the file that `antiphon tasks export` wrote, or its content. The replay ends at the first
    step or question that the history does not have. Raises `ReplayMismatch` if the tool does something else
    than the history recorded or does not accept its arguments, and `NotFound` if the server does not have the
    tool.
    """
    log = _read_history(history)
    assert log.task is not None
    engine, created = server.engine, log.created
    tool = engine.registry.tool(log.task.tool)
    if (problems := tool.problems_of(created["arguments"])) is not None:
        raise ReplayMismatch(
            f"The arguments of the history do not fit the tool {tool.name!r}: {problems}. Give a new "
            "parameter a default, or such tasks fail.",
            found="arguments",
            recorded="arguments",
        )
    function = tool.function
    async with server.running():
        request = CallTool(name=log.task.tool, arguments=dict(created["arguments"]))
        journal = _HistoryJournal(log.journal, id=log.task.id)
        call = _call(
            request,
            _TestCaller(Rehearsal()),
            _HistoryCarrier(journal),
            0,
            msgspec.convert(created["principal"], Principal),
            created.get("capabilities", {}),
        )
        run = Run(call, journal, limits=server.limits)
        bound = function.bind(request.arguments)
        outcome: Any = None
        try:
            outcome = await function.run_once(run, bound, Context(run, engine.environment))
        except ReplayMismatch:
            raise
        except BaseException as error:
            if (end := _find_error(error, _JournalEnd)) is not None:
                return ReplayedHistory(str(end), None, _unused(run))
            if not isinstance(error, Exception):
                raise
            outcome = error
        return ReplayedHistory(None, outcome, _unused(run))


def _read_history(history: str | Path | Mapping[str, Any]) -> TaskHistory:
    content = history if isinstance(history, Mapping) else msgspec.json.decode(Path(history).read_bytes())
    if content.get("format") != HISTORY_FORMAT:
        raise ValueError(
            f"This is no history of format {HISTORY_FORMAT}: write one with `antiphon tasks export`."
        )
    log = TaskHistory()
    for entry in content["log"]:
        log.add(entry["kind"], entry["at"], entry["data"])
    if log.task is None:
        raise ValueError("The history has no entries.")
    return log


def _unused(run: Run) -> Sequence[str]:
    return () if run.replay is None else run.replay.unused()


def _is_note(key: str) -> bool:
    """Return whether an entry of a journal is no operation: the id, fingerprints and marks."""
    return key in ("id", "returned") or key.startswith(fingerprint_key(""))


class _JournalEnd(StopSignal):
    """A replay has reached an operation that is not in its journal."""


class _Unanswered(AssertionError):
    """The test has no answer to a question of the tool. This is an error of the test, not of the tool."""


class _RecordingJournal(Journal):
    """An empty journal, which records the operations of a run in order."""

    __slots__ = ()


class _PartialJournal(Journal):
    """A journal that stops the run at the first operation that it does not contain."""

    __slots__ = ("reached",)

    def __init__(self, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self.reached: str | None = None

    def find(self, key: str) -> Any:
        found = super().find(key)
        if found is MISSING:
            self.before_step(key)
        return found

    def before_step(self, key: str) -> NoReturn:
        self.reached = self.reached or key
        raise _JournalEnd(key)


class _HistoryJournal(Journal):
    """A journal that lets no step run."""

    __slots__ = ()

    def before_step(self, key: str) -> NoReturn:
        raise _JournalEnd(key)


class _HistoryCarrier(StoreCarrier):
    """A carrier that takes no question to anybody."""

    __slots__ = ()

    async def ask(self, run: Run, key: str, question: Question, check: Check | None) -> NoReturn:
        raise _JournalEnd(answer_entry(key))


async def _play(
    server: Server, tool: str, arguments: Mapping[str, Any] | None, answers: Answers | None, journal: Journal
) -> Any:
    """Run a tool once against a journal, and answer its questions directly."""
    engine = server.engine
    function = engine.registry.tool(tool).function

    def answer(key: str, question: Question) -> Any:
        given = _responses([AskedQuestion(key, question)], answers)
        if key not in given:
            raise _Unanswered(f"The tool {tool!r} asks the question {key!r}: add its answer to `answers`.")
        return given[key]

    request = CallTool(name=tool, arguments=dict(arguments or {}))
    caller = _TestCaller(Rehearsal(), answer)
    call = _call(request, caller, engine.connection_carrier, 0, ANONYMOUS, ANSWERS_EVERYTHING)
    run = Run(call, journal, limits=server.limits)
    bound = function.bind(request.arguments)
    try:
        return await function.run_once(run, bound, Context(run, engine.environment))
    except BaseException as error:
        if (unanswered := _find_error(error, _Unanswered)) is not None:
            raise unanswered from None
        if _find_error(error, _JournalEnd) is not None:
            return None
        if isinstance(error, Exception):
            return error
        raise


def _find_error(error: BaseException, kind: type[E]) -> E | None:
    """Return an error of this kind, also from a group of errors that a task group raised."""
    if isinstance(error, BaseExceptionGroup):
        found = (_find_error(each, kind) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return error if isinstance(error, kind) else None


def _server_and_tool(target: Server | Callable[..., Any], name: str | None) -> tuple[Server, str]:
    """Return the server and the tool's name. A function gets a server of its own."""
    if isinstance(target, Server):
        if name is None:
            raise TypeError("Pass the name of the tool: the target is a server.")
        return target, name
    server = Server("rehearsal")
    server.add_tool(target, name=name)
    return server, name or name_of(target)


def _call(
    request: CallTool,
    caller: Caller,
    carrier: Carrier,
    id: int,
    principal: Principal,
    capabilities: Mapping[str, Any],
) -> Call[CallTool]:
    return Call(
        request,
        id=id,
        request_meta=RequestMeta(capabilities=capabilities, log_level="debug", progress_token="rehearsal"),  # nosec B106 # no password
        principal=principal,
        carrier=carrier,
        caller=caller,
        work=Supervised.here(),
    )


class _TestCaller(Caller):
    """A caller that records notifications and, if it has answers, answers questions directly."""

    def __init__(self, rehearsal: Rehearsal, answer: Callable[[str, Question], Any] | None = None) -> None:
        self._rehearsal = rehearsal
        self._answer = answer
        self.can_ask = answer is not None

    async def notify(self, message: CallerMessage) -> None:
        assert not isinstance(message, TaskChanged | Segments)  # a test asks for neither streams nor tasks
        self._rehearsal.notifications.append(message)

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        assert self._answer is not None
        return self._answer(key, question)


def _responses(asked: Sequence[AskedQuestion], answers: Answers | None) -> dict[str, dict[str, Any]]:
    """Return the answers to these questions, as responses on the wire."""
    given: dict[str, dict[str, Any]] = {}
    for question in asked:
        if callable(answers):
            answer = answers(question)
        elif answers is not None and question.key in answers:
            answer = answers[question.key]
        else:
            continue
        given[question.key] = _response(question.question, answer)
    return given


def _response(question: Question, answer: Any) -> dict[str, Any]:
    if isinstance(answer, pydantic.BaseModel):
        answer = answer.model_dump(mode="json", by_alias=True)
    is_refused = isinstance(answer, str) and answer in ("decline", "cancel")
    if isinstance(question, Elicit) and not isinstance(answer, Mapping) and not is_refused:
        answer = {"value": answer}
    return write_answer(question, answer, model="rehearsal")


def _describe(outcome: Any) -> str:
    """Return an outcome as a text, to compare and to show."""
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__}: {outcome}"
    if isinstance(outcome, Result):
        return repr(outcome)
    return repr(msgspec.to_builtins(outcome, enc_hook=repr))
