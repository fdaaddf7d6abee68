"""Testing tools without a server process: give a tool answers, see its questions, replay it everywhere.

answers = {"resolution": {"resolution": "Fixed"}}
rehearsal = await rehearse(server, "resolve_bug", {"item": 7}, answers=answers)
assert rehearsal.result.text == "Bug #7 resolved."
assert [question.key for question in rehearsal.questions] == ["resolution"]

assert await check_replay(server, "resolve_bug", {"item": 7}, answers=answers) == []
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import pydantic

from antiphon.model.capabilities import ANSWERS_EVERYTHING
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.notification import Notification
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Elicit, OpenUrl, Question
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.segment import CallerMessage, Segments
from antiphon.model.task import TaskChanged
from antiphon.runtime.authoring.signature import name_of
from antiphon.runtime.carriers.base import Carrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.journal import MISSING, Journal
from antiphon.runtime.execution.run import Run
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.server import Server
from antiphon.wire.questions import write_answer

__all__ = ["AskedQuestion", "Rehearsal", "check_replay", "rehearse"]

Answers: TypeAlias = Mapping[str, Any] | Callable[["AskedQuestion"], Any]
"""Answers by key, or a function from a question to its answer.

An answer is what a form would hold (a mapping, a model, or the bare value of a question for one), the
text of a model, a list of roots, or `"decline"` and `"cancel"` for a person who says no.
"""

_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """Something that a tool asked."""

    key: str
    ask: Question

    @property
    def message(self) -> str:
        """What it says to a person; empty where it is for a program."""
        return self.ask.message if isinstance(self.ask, Elicit | OpenUrl) else ""


@dataclass(slots=True)
class Rehearsal:
    """How a rehearsed call went."""

    result: Result | None = None
    """How it ended; `None` if it still waits for the answers to `open`."""
    questions: list[AskedQuestion] = field(default_factory=list)
    """Everything that was asked, in order."""
    open: list[AskedQuestion] = field(default_factory=list)
    """What was asked and not answered."""
    rounds: int = 0
    """How often the call was made."""
    notifications: list[Notification] = field(default_factory=list)
    """What was said meanwhile: progress, and log messages."""


async def rehearse(
    target: Server | Callable[..., Any],
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    principal: Principal = ANONYMOUS,
    capabilities: Mapping[str, Any] = ANSWERS_EVERYTHING,
) -> Rehearsal:
    """Call a tool of a server, or a function, through as many rounds as it takes.

    Each round is sealed and opened as it would be on the wire. Raises `RequestError` for a call that
    ends with a JSON-RPC error.
    """
    server, tool = _staged(target, name)
    rehearsal = Rehearsal()
    request = CallTool(name=tool, arguments=dict(arguments or {}))
    async with server.running():
        while rehearsal.rounds < _ROUNDS:
            rehearsal.rounds += 1
            caller, carrier = _TestCaller(rehearsal), server.engine.client_carrier
            call = _call(request, caller, carrier, rehearsal.rounds, principal, capabilities)
            outcome = await server.engine.handle(call)
            if not isinstance(outcome, InputRequired):
                assert isinstance(outcome, Result)
                rehearsal.result = outcome
                return rehearsal
            asked = [AskedQuestion(key, ask) for key, ask in outcome.questions.items()]
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
        f"{tool!r} still asks after {_ROUNDS} rounds: {[q.key for q in rehearsal.questions[-3:]]}."
    )


async def check_replay(
    target: Server | Callable[..., Any],
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
) -> list[str]:
    """Stop a tool at every point of its journal in turn and replay it: where two runs differ, in words.

    Steps are done once, in the first run; a replay that would do anything else than the first run did
    next is stopped before it does it. An empty list says that the tool replays as it should. Raises
    `AssertionError` for a question that `answers` has no answer to.
    """
    server, tool = _staged(target, name)
    found: list[str] = []
    async with server.running():
        first = _Recording()
        expected = await _play(server, tool, arguments, answers, first)
        keys = [key for key in first.entries if key != "id"]
        for point in range(len(keys) + 1):
            known = {key: first.entries[key] for key in ("id", *keys[:point]) if key in first.entries}
            replay = _Prefix(known)
            outcome = await _play(server, tool, arguments, answers, replay)
            where = f"after {keys[point - 1]!r}" if point else "at the start"
            if replay.reached is None:
                if point < len(keys):
                    found.append(f"{where}: the replay ended, and the first run went on to {keys[point]!r}.")
                elif _view(outcome) != _view(expected):
                    found.append(
                        f"at the end: the replay gave {_view(outcome)}, and the first run {_view(expected)}."
                    )
            elif replay.reached not in keys[point:]:
                there = repr(keys[point]) if point < len(keys) else "its end"
                found.append(
                    f"{where}: the replay went on to {replay.reached!r}, and the first run to {there}."
                )
    return found


class _Reached(BaseException):
    """A replay has come to something that is not in its journal."""


class _Unanswered(AssertionError):
    """A test gives no answer to a question that a tool asks: the fault is the test's and not the tool's."""


class _Recording(Journal):
    """A new journal. Its entries are in the order in which things were done."""

    __slots__ = ()


class _Prefix(Journal):
    """A journal that stops whoever comes to its end."""

    __slots__ = ("reached",)

    def __init__(self, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self.reached: str | None = None

    def find(self, key: str) -> Any:
        found = super().find(key)
        if found is MISSING:
            self.reached = self.reached or key
            raise _Reached(key)
        return found


async def _play(
    server: Server, tool: str, arguments: Mapping[str, Any] | None, answers: Answers | None, journal: Journal
) -> Any:
    """Run a tool once against a journal, its questions answered on the spot."""
    engine = server.engine
    function = engine.registry.tool(tool).function

    def answer(key: str, question: Question) -> Any:
        given = _responses([AskedQuestion(key, question)], answers)
        if key not in given:
            raise _Unanswered(f"{tool!r} asks {key!r}, and there is no answer to it.")
        return given[key]

    request = CallTool(name=tool, arguments=dict(arguments or {}))
    caller = _TestCaller(Rehearsal(), answer)
    call = _call(request, caller, engine.connection_carrier, 0, ANONYMOUS, ANSWERS_EVERYTHING)
    run = Run(call, journal, limits=server.limits)
    bound = function.bind(request.arguments)
    try:
        return await function.run_once(run, bound, Context(run, engine.environment))
    except _Reached:
        return None
    except _Unanswered:
        raise
    except Exception as error:
        return error


def _staged(target: Server | Callable[..., Any], name: str | None) -> tuple[Server, str]:
    if isinstance(target, Server):
        if name is None:
            raise TypeError("Say which tool of the server to rehearse.")
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
        request_meta=RequestMeta(capabilities=capabilities, log_level="debug", progress_token="rehearsal"),
        principal=principal,
        carrier=carrier,
        caller=caller,
        work=Supervised.here(),
    )


class _TestCaller(Caller):
    """The caller is a test, which may answer on the spot."""

    def __init__(self, rehearsal: Rehearsal, answer: Callable[[str, Question], Any] | None = None) -> None:
        self._rehearsal = rehearsal
        self._answer = answer
        self.can_ask = answer is not None

    async def notify(self, message: CallerMessage) -> None:
        assert not isinstance(message, TaskChanged | Segments)  # for callers who want a stream or a task
        self._rehearsal.notifications.append(message)

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        assert self._answer is not None
        return self._answer(key, question)


def _responses(asked: Sequence[AskedQuestion], answers: Answers | None) -> dict[str, dict[str, Any]]:
    """The answers to these questions, as they would be on the wire."""
    given: dict[str, dict[str, Any]] = {}
    for question in asked:
        if callable(answers):
            answer = answers(question)
        elif answers is not None and question.key in answers:
            answer = answers[question.key]
        else:
            continue
        given[question.key] = _response(question.ask, answer)
    return given


def _response(question: Question, answer: Any) -> dict[str, Any]:
    if isinstance(answer, pydantic.BaseModel):
        answer = answer.model_dump(mode="json", by_alias=True)
    is_refused = isinstance(answer, str) and answer in ("decline", "cancel")
    if isinstance(question, Elicit) and not isinstance(answer, Mapping) and not is_refused:
        answer = {"value": answer}
    return write_answer(question, answer, model="rehearsal")


def _view(outcome: Any) -> str:
    """An outcome, in a form that can be compared and shown."""
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__}: {outcome}"
    if isinstance(outcome, Result):
        return repr(outcome)
    return repr(msgspec.to_builtins(outcome, enc_hook=repr))
