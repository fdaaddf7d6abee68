"""Calls that a test makes: the simulated caller, its answers, and the notifications that it gets.

Shared by rehearsals and replays. Knows no journal and no recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import pydantic

from antiphon.model.identity import Principal
from antiphon.model.inbox import InboxNews
from antiphon.model.notification import Notification
from antiphon.model.outcome import Result
from antiphon.model.question import Elicit, OpenUrl, Question
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.segment import CallerMessage, Segments
from antiphon.model.task import TaskChanged
from antiphon.runtime.authoring.signature import name_of
from antiphon.runtime.carriers.base import Carrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.server import Server
from antiphon.wire.questions import write_answer

__all__ = [
    "Answers",
    "AskedQuestion",
    "Rehearsal",
    "SimulatedCaller",
    "make_call",
    "responses_to",
    "server_and_tool",
]

Answers: TypeAlias = Mapping[str, Any] | Callable[["AskedQuestion"], Any]
"""Answers by the key of the question, or a function that takes a question and returns its answer.

The answer to a form is a mapping, a model, or the bare value if the form has one field. The answer to a
sampling request is a text. The answer to a request for roots is a list. `"decline"` and `"cancel"` stand for
a person who does not answer.
"""


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that a tool asked."""

    key: str
    """The key of the question."""
    question: Question
    """The question itself: an `Elicit`, `OpenUrl`, `Sample` or `ListRoots`."""
    to: tuple[str, ...] = ()
    """Who is asked in place of the caller: see `ctx.elicit(to=…)`."""

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
    slept: timedelta = timedelta(0)
    """How long the task has waited for times and answers that did not come. The test did not wait."""


def server_and_tool(target: Server | Callable[..., Any], name: str | None) -> tuple[Server, str]:
    """Return the server and the tool's name. A function gets a server of its own."""
    if isinstance(target, Server):
        if name is None:
            raise TypeError("Pass the name of the tool: the target is a server.")
        return target, name
    server = Server("rehearsal")
    server.add_tool(target, name=name)
    return server, name or name_of(target)


def make_call(
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


class SimulatedCaller(Caller):
    """A caller that records notifications and, if it has answers, answers questions directly."""

    def __init__(self, rehearsal: Rehearsal, answer: Callable[[str, Question], Any] | None = None) -> None:
        self._rehearsal = rehearsal
        self._answer = answer
        self.can_ask = answer is not None

    async def notify(self, message: CallerMessage) -> None:
        assert not isinstance(message, TaskChanged | Segments | InboxNews)  # a test asks for none of them
        self._rehearsal.notifications.append(message)

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        assert self._answer is not None
        return self._answer(key, question)


def responses_to(asked: Sequence[AskedQuestion], answers: Answers | None) -> dict[str, dict[str, Any]]:
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
