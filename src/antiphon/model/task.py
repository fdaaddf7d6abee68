"""Tasks, and how a task is computed from the entries of its log.

The log is the source of truth; a `Task` is the state after its last entry. The states and their transitions
are a table. The dialects name the states on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Question, Sample, with_problem
from antiphon.model.waiting import Wait, describe_waits

__all__ = [
    "ANSWERED_BY",
    "ANSWERED_IN",
    "ANSWER_KIND",
    "HELD",
    "HISTORY_FORMAT",
    "MAX_ENTRY_RANGES",
    "MAX_MESSAGE_CHARACTERS",
    "OTHERS_KIND",
    "SEGMENT_ENTRIES",
    "STORED_QUESTIONS",
    "TRANSITIONS",
    "EntryKind",
    "EntryRanges",
    "Fault",
    "Promise",
    "State",
    "Task",
    "TaskChanged",
    "TaskPage",
    "TaskProgress",
    "TaskResult",
    "TaskView",
    "answer_entry",
    "dump_questions",
    "dump_result",
    "load_questions",
    "load_result",
    "others_entry",
    "question_kind",
    "unique_key",
]

HISTORY_FORMAT = 1
"""The format of the files that `antiphon tasks export` writes and `antiphon.testing` reads."""

STORED_QUESTIONS = "asks"
"""The name of a task's open questions in stores. It never changes: existing stores contain it."""

ANSWER_KIND: Final = "ask"
"""The prefix of answers in journals. It never changes: existing logs and request states contain it."""

OTHERS_KIND = "others"
"""The prefix of the answers of others in journals. It never changes: existing logs contain it."""

ANSWERED_BY = "answered_by"
"""The key, in an entry with answers, of the person who answered in place of the task's principal."""

ANSWERED_IN = "traceparent"
"""The key, in an entry with answers, of the span of the request that answered, if it was traced."""

HELD = "held"
"""The key, in an entry with questions, that says that the function waits in its process, with its claim."""

SEGMENT_ENTRIES = "segment_entries"
"""The key, in the entry that ends a task, of the ranges of entries that hold segments."""

MAX_ENTRY_RANGES = 1000
"""How many ranges the entry that ends a task names at most."""

MAX_MESSAGE_CHARACTERS = 500
"""The length of the longest status message. A longer progress message is cut."""

State: TypeAlias = Literal["working", "waiting", "parked", "done", "faulted", "cancelled"]
"""`waiting` means for answers of the caller, `parked` for anything else. `done` has a result, which may say
that the tool failed; `faulted` has a JSON-RPC error in place of a result."""

_ENDED: tuple[State, ...] = ("done", "faulted", "cancelled")
"""The states of a task that has ended."""

_PARKED: tuple[State, ...] = ("waiting", "parked")
"""The states of a task that waits. A worker may run it at the same time: see `woken`."""

EntryKind: TypeAlias = Literal[
    "created", "recorded", "emitted", "asked", "parked", "answered", "woken", "ended", "faulted", "cancelled"
]

TRANSITIONS: Mapping[tuple[State, EntryKind], State] = {
    ("working", "recorded"): "working",
    ("working", "emitted"): "working",
    ("working", "asked"): "waiting",
    ("working", "parked"): "parked",
    ("working", "ended"): "done",
    ("working", "faulted"): "faulted",
    ("working", "cancelled"): "cancelled",
    ("waiting", "answered"): "working",
    **{(state, kind): state for state in _PARKED for kind in ("woken", "recorded", "emitted")},
    **{(state, "asked"): "waiting" for state in _PARKED},
    **{(state, "parked"): "parked" for state in _PARKED},
    **{(state, "ended"): "done" for state in _PARKED},
    **{(state, "faulted"): "faulted" for state in _PARKED},
    **{(state, "cancelled"): "cancelled" for state in _PARKED},
    ("parked", "answered"): "working",
    ("cancelled", "recorded"): "cancelled",
    ("done", "recorded"): "working",
    ("faulted", "recorded"): "working",
}
"""The state of a task after an entry. A pair that is missing is invalid.

A task that was `woken`, because a time has come or an event has arrived, is run while it goes on waiting for
the rest: its questions stay open. After `answered`, it works if nothing else is open. After `asked` and
`parked`, it works if everything was answered while it ran.

A finished task never changes by itself. An operator may retry a task that failed: that is the entry
`recorded` with `retry` in its data. The log of a cancelled task may get entries about the run that unwinds
its function; they change nothing that callers see.
"""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON-RPC error that a task ended with."""

    code: int
    message: str
    data: Any = None
    needs: Mapping[str, Any] | None = None
    """The client capabilities that were missing, if they are why the task failed."""


class TaskProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a task, as its function reported it last."""

    progress: float
    total: float | None = None
    message: str | None = None

    @property
    def text(self) -> str:
        """The progress as a sentence for people, for example `3 of 10: fetching`."""
        done = f"{self.progress:.15g}"
        count = done if self.total is None else f"{done} of {self.total:.15g}"
        text = f"{count}: {self.message}" if self.message else count
        return text if len(text) <= MAX_MESSAGE_CHARACTERS else f"{text[: MAX_MESSAGE_CHARACTERS - 1]}…"


class EntryRanges:
    """The numbers of some entries of a log, as ranges that include their ends.

    There are few ranges even if other entries are between the entries: then a range includes some of these.
    """

    __slots__ = ("_gap", "ranges")

    def __init__(self) -> None:
        self.ranges: list[list[int]] = []
        self._gap = 1

    def add(self, number: int) -> None:
        """Add the number of a later entry."""
        if self.ranges and number - self.ranges[-1][1] <= self._gap:
            self.ranges[-1][1] = number
            return
        self.ranges.append([number, number])
        while len(self.ranges) > MAX_ENTRY_RANGES:
            self._gap *= 2
            before, self.ranges = self.ranges, []
            for first, end in before:
                self.add(first)
                self.ranges[-1][1] = end


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a task. Times are in milliseconds since 1970."""

    id: str
    tool: str
    created: int
    updated: int
    state: State = "working"
    message: str | None = None
    ttl: int | None = None
    """How long after its creation the task expires, in milliseconds; `None` means never, or not decided yet.

    A caller may ask for it. Otherwise it is decided when the task ends, from `keep`.
    """
    poll: int = 1000
    """How long a caller should wait between two polls, in milliseconds."""
    questions: Mapping[str, Any] = msgspec.field(default_factory=dict, name=STORED_QUESTIONS)
    """The open questions, by key, as `dump_questions` writes them."""
    problems: Mapping[str, str] = {}
    """Why the last answers to open questions did not fit, by key."""
    times_asked: Mapping[str, int] = {}
    """How often the function asked a question, by key, if it asked the question again after an answer."""
    result: Mapping[str, Any] | None = None
    """The result, as `dump_result` writes it, without the content that is in the log as segments.

    In a task with all its content, the content is JSON.
    """
    fault: Fault | None = None
    segments: int = 0
    """The number of segments in the log. The content of the result comes after them."""
    progress: TaskProgress | None = None
    """The progress that `message` describes, while the task works. It is not in the log.

    A task that has ended has the last report of its function, which is in the entry that ended the task.
    """
    keep: int | None = None
    """How long the store keeps the task after its end at most, in milliseconds; `None` means for ever."""
    waits: Mapping[str, Wait] = {}
    """What else the task waits for, by key: times, events, and answers of others. Callers do not see it."""
    late: tuple[str, ...] = ()
    """The keys of answers that came while a worker ran the task. The run may not have seen them."""
    runs_again: bool = False
    """Whether a worker has to run the task although it waits: something that it waited for has come."""
    quiet_releases: int = 0
    """How many claims were released without an entry since the last entry of a worker. It is not in the log.

    The next entry of a worker has the number, so that these claims do not count as lost runs.
    """
    summary: str | None = None
    """The arguments in one short line, for lists; `None` without arguments. Callers do not see it."""
    traceparent: str | None = None
    """The span of the request that made the task, in W3C's form; `None` without one."""

    @property
    def has_ended(self) -> bool:
        """Whether the task has finished. A finished task never changes."""
        return self.state in _ENDED

    @property
    def expires(self) -> int | None:
        """When the task expires; `None` means never, or not decided yet."""
        return None if self.ttl is None else self.created + self.ttl

    @property
    def visible_state(self) -> tuple[Any, ...]:
        """The parts of the task that callers are notified of when they change."""
        return self.state, self.message, self.questions, self.problems, self._reminders

    @property
    def open_questions(self) -> dict[str, Question]:
        """The open questions, by key. One that got an answer which did not fit says why."""
        questions = load_questions(self.questions)
        return {key: with_problem(question, self.problems.get(key)) for key, question in questions.items()}

    @property
    def asks_people(self) -> bool:
        """Whether the task has an open question that a person can answer, its caller or somebody else."""
        return any(kind in _FOR_PEOPLE for kind, _ in self.questions.values()) or any(
            wait.question is not None for wait in self.waits.values()
        )

    @property
    def _reminders(self) -> int:
        return sum(wait.reminded for wait in self.waits.values())

    def unique_key(self, key: str) -> str:
        """Return the key of a question for versions in which a key names one question for ever."""
        return unique_key(key, self.times_asked.get(key))

    @property
    def failed(self) -> bool:
        """Whether the tool ran and failed."""
        return self.result is not None and bool(self.result.get("is_error"))

    def after(self, kind: EntryKind, data: Mapping[str, Any], at: int) -> Task:
        """Return the task after one more entry; raises `ValueError` if the entry is invalid in this state."""
        state = TRANSITIONS.get((self.state, kind))
        if state is None or (self.has_ended and state == "working" and not self._may_retry(data)):
            raise ValueError(f"A task that is {self.state} cannot be {kind}.")
        changes: dict[str, Any] = {"state": state, "updated": max(at, self.updated)}
        if self.has_ended and state == "working":  # its lifetime counts from the next end
            changes.update(
                result=None, fault=None, ttl=None, keep=self.ttl if self.keep is None else self.keep
            )
        if state != self.state:  # the message was about the state before
            changes.update(message=None, progress=None)
        if "message" in data and self.state != "cancelled":
            changes.update(message=data["message"], progress=None)
        if self.runs_again:
            changes["runs_again"] = False
        if kind in ("asked", "parked"):
            changes.update(self._stopped(data), problems={})
            if again := data.get("again"):
                counts = {key: self.times_asked.get(key, 1) + 1 for key in again}
                changes["times_asked"] = {**self.times_asked, **counts}
        elif kind == "answered":
            changes.update(self._answered(data))
            if self.problems or "problems" in data:
                problems = {**self.problems, **data.get("problems", {})}
                changes["problems"] = {
                    key: problem for key, problem in problems.items() if key in changes["questions"]
                }
        elif kind == "emitted":
            changes["segments"] = self.segments + len(data["blocks"])
        elif kind == "ended":
            changes["result"] = data["result"]
        elif kind == "faulted":
            changes["fault"] = msgspec.convert(data["fault"], Fault)
        if kind in ("ended", "faulted") and "progress" in data:
            changes["progress"] = msgspec.convert(data["progress"], TaskProgress)
        if state in _ENDED and (self.questions or self.waits):
            changes.update(questions={}, problems={}, waits={}, late=())
        if self.keep is not None and state in _ENDED and state != self.state:
            # The lifetime of a task counts from its end.
            ttl = changes["updated"] - self.created + self.keep
            changes["ttl"] = ttl if self.ttl is None else min(ttl, self.ttl)
        return msgspec.structs.replace(self, **changes)

    def _stopped(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes after a run that stopped at questions or other waits.

        Those that were answered while the run was under way are not open: the task is run again. A question
        to others that needs more answers stays open, with the answers that came during the run. A function
        that waits in its process gets an answer there.
        """
        late = set(self.late).difference(data.get("again", ()) if data.get(HELD) else ())
        questions = {key: asked for key, asked in data[STORED_QUESTIONS].items() if key not in late}
        waits = msgspec.convert(data.get("waits", {}), dict[str, Wait])
        runs_again = not late.isdisjoint({*data[STORED_QUESTIONS], *waits})
        if data.get(HELD):
            state: State = "waiting" if questions else "working"
            return {"questions": questions, "late": (), "state": state}
        for key in late.intersection(waits):
            if (before := self.waits.get(key)) is None:
                del waits[key]
            else:
                people = dict.fromkeys((*waits[key].answered_by, *before.answered_by))
                waits[key] = msgspec.structs.replace(waits[key], answered_by=tuple(people))
        changes: dict[str, Any] = {"questions": questions, "late": (), "runs_again": runs_again}
        if self.waits or waits:
            changes["waits"] = waits
        if not questions and waits:
            changes.update(state="parked", message=describe_waits(waits), progress=None)
        elif not questions and runs_again:
            changes["state"] = "working"
        return changes

    def _answered(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes after answers of the caller (`responses`) or of others (`others`).

        `resolved` are the keys of the questions to others that have all their answers. `late` says that a
        worker ran the task when the answers came.
        """
        responses, resolved = data["responses"], data.get("resolved", ())
        questions = {key: asked for key, asked in self.questions.items() if key not in responses}
        changes: dict[str, Any] = {"questions": questions}
        if self.waits:
            waits = {
                key: wait for key, wait in self.waits.items() if key not in responses and key not in resolved
            }
            for key, (principal, _, _) in data.get("others", {}).items():
                if (wait := waits.get(key)) is not None:
                    waits[key] = msgspec.structs.replace(wait, answered_by=(*wait.answered_by, principal))
            changes["waits"] = waits
        is_open = questions or changes.get("waits")
        changes["state"] = "waiting" if questions else "parked" if is_open else "working"
        if changes["state"] == "parked":
            changes["message"] = describe_waits(changes["waits"])
        if data.get("late"):
            changes["late"] = (*self.late, *responses, *data.get("others", ()))
        elif is_open:
            changes["runs_again"] = bool(resolved) or (bool(responses) and not questions)
        return changes

    def _may_retry(self, data: Mapping[str, Any]) -> bool:
        return bool(data.get("retry")) and (self.failed or self.state == "faulted")


def unique_key(key: str, times: int | None) -> str:
    """Return the key of a question after so many times, for versions in which a key is used once."""
    return key if times is None or times < 2 else f"{key}~{times}"


def answer_entry(key: str) -> str:
    """Return the key of an answer in the journal, from the key of its question."""
    return f"{ANSWER_KIND}:{key}"


def others_entry(key: str) -> str:
    """Return the key, in the journal, of the answers of others to a question."""
    return f"{OTHERS_KIND}:{key}"


_KINDS: Mapping[str, type[Any]] = {"elicit": Elicit, "url": OpenUrl, "sample": Sample, "roots": ListRoots}
_FOR_PEOPLE = ("elicit", "url")
"""The kinds of questions that a person can answer. The others are for programs."""
_NAMES: Mapping[type[Any], str] = {kind: name for name, kind in _KINDS.items()}


def question_kind(question: Question) -> str:
    """Return the name that stores and journals have for a kind of question."""
    return _NAMES[type(question)]


def dump_questions(questions: Mapping[str, Question]) -> dict[str, Any]:
    """Return questions in the form in which stores keep them."""
    return {
        key: [_NAMES[type(question)], msgspec.to_builtins(question)] for key, question in questions.items()
    }


def load_questions(data: Mapping[str, Any]) -> dict[str, Question]:
    """Return the questions that `dump_questions` wrote."""
    return {key: msgspec.convert(fields, _KINDS[name]) for key, (name, fields) in data.items()}


def dump_result(result: Result) -> dict[str, Any]:
    """Return a result in the form in which stores keep it."""
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
    """Return the result that `dump_result` wrote. Its blocks stay plain mappings, or JSON."""
    content = data["content"]
    is_json = isinstance(content, msgspec.Raw)
    result = Result(
        () if is_json else content,
        data=data.get("data", msgspec.UNSET),
        meta=data.get("meta"),
        is_error=data["is_error"],
    )
    if is_json:
        result.content = content  # the content of many segments: a dialect copies it
    result.boxed = data.get("boxed", False)
    result.emitted = data.get("emitted", 0)
    return result


class Promise(msgspec.Struct, frozen=True):
    """The response to a call that became a task: the caller gets the result of the task later."""

    task: Task
    fell_back: bool = False
    """Whether the call became a task because no response mode that the caller offered was possible."""


class TaskView(msgspec.Struct, frozen=True):
    """The response with the current state of a task."""

    task: Task


class TaskPage(msgspec.Struct, frozen=True):
    """One page of a caller's tasks."""

    tasks: tuple[Task, ...]
    next_cursor: str | None = None


class TaskResult:
    """The result of a task, or the questions that it waits for."""

    __slots__ = ("outcome", "task_id")

    def __init__(self, outcome: Result | InputRequired, task_id: str) -> None:
        self.outcome = outcome
        self.task_id = task_id


class TaskChanged(msgspec.Struct, frozen=True):
    """The notification that a task has changed, for its subscribers."""

    task: Task
