"""Tasks: what their log says, and how it folds into what a caller sees.

The log is the truth; a `Task` is what has been folded from it so far. The states and what leads from one
to the next are a table. What a state is called on the wire is the dialects' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Question, Sample

__all__ = [
    "ANSWER_KIND",
    "STORED_QUESTIONS",
    "TRANSITIONS",
    "EntryKind",
    "Fault",
    "Promise",
    "State",
    "Task",
    "TaskChanged",
    "TaskHistory",
    "TaskPage",
    "TaskResult",
    "TaskView",
    "answer_entry",
    "dump_questions",
    "dump_result",
    "load_questions",
    "load_result",
]

STORED_QUESTIONS = "asks"
"""What stores call the open questions of a task. Stores that exist have it: it never changes."""

ANSWER_KIND = "ask"
"""What journals call the answer to a question, in logs and in sealed states. It never changes either."""

State: TypeAlias = Literal["working", "waiting", "done", "faulted", "cancelled"]
"""`waiting` is for answers; `done` has a result, of a failed tool too; `faulted` has an error instead."""

EntryKind: TypeAlias = Literal[
    "created", "recorded", "emitted", "asked", "answered", "ended", "faulted", "cancelled"
]

TRANSITIONS: Mapping[tuple[State, EntryKind], State] = {
    ("working", "recorded"): "working",
    ("working", "emitted"): "working",
    ("working", "asked"): "waiting",
    ("working", "ended"): "done",
    ("working", "faulted"): "faulted",
    ("working", "cancelled"): "cancelled",
    ("waiting", "answered"): "working",
    ("waiting", "faulted"): "faulted",
    ("waiting", "cancelled"): "cancelled",
}
"""What an entry makes of a task. A pair that is not here cannot happen: nothing follows an end."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON-RPC error that a task ended with."""

    code: int
    message: str
    data: Any = None
    needs: Mapping[str, Any] | None = None
    """The client capabilities that were missing, if the task failed for want of them."""


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task, as it stands. Times are in milliseconds since 1970."""

    id: str
    tool: str
    created: int
    updated: int
    state: State = "working"
    message: str | None = None
    ttl: int | None = None
    """How long it is kept from its creation on, in milliseconds; `None` for ever."""
    poll: int = 1000
    """How long a caller should wait before it looks again, in milliseconds."""
    questions: Mapping[str, Any] = msgspec.field(default_factory=dict, name=STORED_QUESTIONS)
    """The questions that are open, by key, as `dump_questions` writes them."""
    result: Mapping[str, Any] | None = None
    """How it ended, as `dump_result` writes it; of its content, what is not in the log as segments."""
    fault: Fault | None = None
    segments: int = 0
    """How many segments its log has. What its result has besides comes after them."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "faulted", "cancelled")

    @property
    def shown(self) -> tuple[Any, ...]:
        """What makes it different from before in the eyes of a caller."""
        return self.state, self.message, self.questions

    @property
    def failed(self) -> bool:
        """Whether the tool ran and failed."""
        return self.result is not None and bool(self.result.get("is_error"))

    def after(self, kind: EntryKind, data: Mapping[str, Any], at: int) -> Task:
        """The task after one more entry; raises `ValueError` for one that cannot follow."""
        state = TRANSITIONS.get((self.state, kind))
        if state is None:
            raise ValueError(f"A task that is {self.state} cannot be {kind}.")
        changes: dict[str, Any] = {"state": state, "updated": max(at, self.updated)}
        if "message" in data:
            changes["message"] = data["message"]
        if kind == "asked":
            changes["questions"] = data[STORED_QUESTIONS]
        elif kind == "answered":
            changes["questions"] = {
                key: ask for key, ask in self.questions.items() if key not in data["responses"]
            }
            changes["state"] = "waiting" if changes["questions"] else "working"
        elif kind == "emitted":
            changes["segments"] = self.segments + len(data["blocks"])
        elif kind == "ended":
            changes["result"] = data["result"]
        elif kind == "faulted":
            changes.update(fault=msgspec.convert(data["fault"], Fault), questions={})
        elif kind == "cancelled":
            changes["questions"] = {}
        return msgspec.structs.replace(self, **changes)


def answer_entry(key: str) -> str:
    """Return the journal's name for the answer to the question with a key."""
    return f"{ANSWER_KIND}:{key}"


class TaskHistory:
    """A log as it is read, from its beginning on. Segments are counted, and not kept."""

    __slots__ = ("created", "journal", "last", "responses", "task")

    def __init__(self) -> None:
        self.task: Task | None = None
        self.created: Mapping[str, Any] = {}
        """What the task was created with."""
        self.journal: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}
        """What was answered since it last asked, or was brought along when it was made."""
        self.last: EntryKind | None = None

    def add(self, kind: EntryKind, at: int, data: Mapping[str, Any]) -> None:
        """Take the next entry; raises `ValueError` for one that cannot follow."""
        self.last = kind
        self.journal.update(data.get("journal", {}))
        if kind == "created":
            self.created = data
            self.task = msgspec.convert(data["task"], Task)
        elif self.task is None:
            raise ValueError("A log begins with the creation of its task.")
        else:
            self.task = self.task.after(kind, data, at)
        if kind == "asked":
            self.responses = {}
        elif kind == "answered":
            self.journal.update({answer_entry(key): value for key, value in data["responses"].items()})
        if kind in ("created", "answered"):
            self.responses |= data.get("responses", {})


_KINDS: Mapping[str, type[Any]] = {"elicit": Elicit, "url": OpenUrl, "sample": Sample, "roots": ListRoots}
_NAMES: Mapping[type[Any], str] = {kind: name for name, kind in _KINDS.items()}


def dump_questions(asks: Mapping[str, Question]) -> dict[str, Any]:
    """Questions as JSON."""
    return {key: [_NAMES[type(ask)], msgspec.to_builtins(ask)] for key, ask in asks.items()}


def load_questions(data: Mapping[str, Any]) -> dict[str, Question]:
    """Questions from JSON."""
    return {key: msgspec.convert(fields, _KINDS[name]) for key, (name, fields) in data.items()}


def dump_result(result: Result) -> dict[str, Any]:
    """A result as JSON."""
    value: dict[str, Any] = {"content": msgspec.to_builtins(result.content), "is_error": result.is_error}
    if result.structured:
        value["data"] = result.data
        value["boxed"] = result.boxed
    if result.meta:
        value["meta"] = dict(result.meta)
    if result.emitted:
        value["emitted"] = result.emitted
    return value


def load_result(data: Mapping[str, Any]) -> Result:
    """A result from JSON; its blocks stay as they were written."""
    result = Result(
        data["content"],
        data=data.get("data", msgspec.UNSET),
        meta=data.get("meta"),
        is_error=data["is_error"],
        boxed=data.get("boxed", False),
    )
    result.emitted = data.get("emitted", 0)
    return result


class Promise(msgspec.Struct, frozen=True):
    """The call goes on without its caller, who can redeem this task later."""

    task: Task
    fell_back: bool = False
    """Whether the caller had offered only ways to answer that could not be gone."""


class TaskView(msgspec.Struct, frozen=True):
    """How a task stands."""

    task: Task


class TaskPage(msgspec.Struct, frozen=True):
    """Some of a caller's tasks."""

    tasks: tuple[Task, ...]
    next_cursor: str | None = None


class TaskResult:
    """What a task gave, or what it asks."""

    __slots__ = ("outcome", "task_id")

    def __init__(self, outcome: Result | InputRequired, task_id: str) -> None:
        self.outcome = outcome
        self.task_id = task_id


class TaskChanged(msgspec.Struct, frozen=True):
    """A task stands otherwise than before; told to those who asked to hear of it."""

    task: Task
