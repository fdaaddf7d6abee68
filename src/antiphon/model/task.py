"""Tasks, and how a task is computed from the entries of its log.

The log is the source of truth; a `Task` is the state after its last entry. The states and their transitions
are a table. The dialects name the states on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.outcome import InputRequired, Result
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Question, Sample, with_problem

__all__ = [
    "ANSWER_KIND",
    "HISTORY_FORMAT",
    "MAX_ENTRY_RANGES",
    "MAX_MESSAGE_CHARACTERS",
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
    "TaskHistory",
    "TaskPage",
    "TaskProgress",
    "TaskResult",
    "TaskView",
    "answer_entry",
    "dump_questions",
    "dump_result",
    "load_questions",
    "load_result",
    "question_kind",
]

HISTORY_FORMAT = 1
"""The format of the files that `antiphon tasks export` writes and `antiphon.testing` reads."""

STORED_QUESTIONS = "asks"
"""The name of a task's open questions in stores. It never changes: existing stores contain it."""

ANSWER_KIND = "ask"
"""The prefix of answers in journals. It never changes: existing logs and request states contain it."""

SEGMENT_ENTRIES = "segment_entries"
"""The key, in the entry that ends a task, of the ranges of entries that hold segments."""

MAX_ENTRY_RANGES = 1000
"""How many ranges the entry that ends a task names at most."""

MAX_MESSAGE_CHARACTERS = 500
"""The length of the longest status message. A longer progress message is cut."""

State: TypeAlias = Literal["working", "waiting", "done", "faulted", "cancelled"]
"""`waiting` means for answers. `done` has a result, which may say that the tool failed; `faulted` has a
JSON-RPC error in place of a result."""

_ENDED: tuple[State, ...] = ("done", "faulted", "cancelled")
"""The states of a task that has ended."""

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
    ("cancelled", "recorded"): "cancelled",
    ("done", "recorded"): "working",
    ("faulted", "recorded"): "working",
}
"""The state of a task after an entry. A pair that is missing is invalid.

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
    """The progress that `message` describes, while the task works. It is not in the log."""
    keep: int | None = None
    """How long the store keeps the task after its end at most, in milliseconds; `None` means for ever."""
    quiet_releases: int = 0
    """How many claims were released without an entry since the last entry of a worker. It is not in the log.

    The next entry of a worker has the number, so that these claims do not count as lost runs.
    """

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
        return self.state, self.message, self.questions, self.problems

    @property
    def open_questions(self) -> dict[str, Question]:
        """The open questions, by key. One that got an answer which did not fit says why."""
        questions = load_questions(self.questions)
        return {key: with_problem(question, self.problems.get(key)) for key, question in questions.items()}

    def unique_key(self, key: str) -> str:
        """Return the key of a question for versions in which a key names one question for ever."""
        times = self.times_asked.get(key)
        return key if times is None else f"{key}~{times}"

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
        if kind == "asked":
            changes.update(questions=data[STORED_QUESTIONS], problems={})
            if again := data.get("again"):
                counts = {key: self.times_asked.get(key, 1) + 1 for key in again}
                changes["times_asked"] = {**self.times_asked, **counts}
        elif kind == "answered":
            changes["questions"] = {
                key: question for key, question in self.questions.items() if key not in data["responses"]
            }
            changes["state"] = "waiting" if changes["questions"] else "working"
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
            changes.update(fault=msgspec.convert(data["fault"], Fault), questions={}, problems={})
        elif kind == "cancelled":
            changes.update(questions={}, problems={})
        if self.keep is not None and state in _ENDED and state != self.state:
            # The lifetime of a task counts from its end.
            ttl = changes["updated"] - self.created + self.keep
            changes["ttl"] = ttl if self.ttl is None else min(ttl, self.ttl)
        return msgspec.structs.replace(self, **changes)

    def _may_retry(self, data: Mapping[str, Any]) -> bool:
        return bool(data.get("retry")) and (self.failed or self.state == "faulted")


def answer_entry(key: str) -> str:
    """Return the key of an answer in the journal, from the key of its question."""
    return f"{ANSWER_KIND}:{key}"


class TaskHistory:
    """Reads a task's log, entry by entry. Counts segments, but does not keep them.

    Also counts the runs that were lost: claims that ended without an entry that says so. Every entry of a
    worker names its claim (`by`, the token). A run ends in order with a question, with the end of the task,
    or with an entry that has `released`, or is released without an entry: then the next entry has the number
    of such claims. An entry with `attempt` notes a loss that was counted. Progress (a step, segments, an
    answer) starts the count again.
    """

    __slots__ = (
        "_claim",
        "_in_order",
        "_lost",
        "created",
        "journal",
        "last",
        "mismatches",
        "noted_attempts",
        "quiet_releases",
        "refusals",
        "responses",
        "segment_entries",
        "task",
        "version",
    )

    def __init__(self) -> None:
        self.task: Task | None = None
        self.version = 0
        """The number of entries that were added."""
        self.segment_entries = EntryRanges()
        """The entries that hold segments."""
        self.created: Mapping[str, Any] = {}
        """The data of the first entry: the call that created the task."""
        self.journal: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}
        """The answers since the task last asked, or that came with the call that created it."""
        self.last: EntryKind | None = None
        self.mismatches = 0
        """How often a worker of another version has given the task back since it last made progress."""
        self.noted_attempts = 0
        """How many attempts the log says have failed since the task last made progress."""
        self.refusals = 0
        """How many of the noted attempts failed before the function ran."""
        self.quiet_releases = 0
        """How many claims were released without an entry since the last entry of a worker."""
        self._lost = 0
        self._claim: int | None = 0  # the last claim that is accounted for; None if the log does not say
        self._in_order = True  # whether the last entry queued the task in order

    def add(self, kind: EntryKind, at: int, data: Mapping[str, Any]) -> None:
        """Add the next entry; raises `ValueError` if the entry is invalid in this state."""
        self.last = kind
        self.version += 1
        self.journal.update(data.get("journal", {}))
        if kind == "created":
            self.created = data
            self.task = msgspec.convert(data["task"], Task)
        elif self.task is None:
            raise ValueError(f"The first entry of a task's log must be 'created', not {kind!r}.")
        else:
            self.task = self.task.after(kind, data, at)
            self._count(kind, data)
        if kind in ("emitted", "asked", "answered") or data.get("journal"):
            self.mismatches = 0
        self.mismatches = data.get("mismatches", self.mismatches)
        if kind == "emitted":
            self.segment_entries.add(self.version)
        elif kind == "asked":
            self.responses = {}
        elif kind == "answered":
            self.journal.update({answer_entry(key): value for key, value in data["responses"].items()})
        if kind in ("created", "answered"):
            self.responses |= data.get("responses", {})

    @property
    def names_claims(self) -> bool:
        """Whether the log says which claims were lost. Logs of early versions do not."""
        return self._claim is not None

    def lost_runs(self, token: int) -> int:
        """Return how many runs were lost since the last progress, before the claim with this token.

        Claims that wrote nothing count as one run at most. After a failed attempt, each run writes its
        beginning, so claims that wrote nothing did not run.
        """
        if self._claim is None:
            return self._lost if self._in_order else self._lost + 1
        has_run = not self._in_order or not self._lost + self.refusals
        return self._lost + (1 if has_run and self.silent_claims(token) else 0)

    def silent_claims(self, token: int) -> int:
        """Return how many claims before the one with this token wrote nothing, or did not end in order."""
        return 0 if self._claim is None else max(token - 1 - self._claim - self.quiet_releases, 0)

    def _count(self, kind: EntryKind, data: Mapping[str, Any]) -> None:
        """Update the count of lost runs after an entry other than the first."""
        by = data.get("by")
        if kind == "answered" or data.get("retry"):
            self._lost = self.noted_attempts = self.refusals = 0
            self._in_order = True
            return
        if kind == "cancelled":
            return
        self.quiet_releases = data.get("quiet_releases", 0)
        if kind in ("emitted", "asked") or data.get("journal"):
            self._lost = self.noted_attempts = self.refusals = 0
        elif by is not None:
            self._lost = self.lost_runs(by)
        self._claim, self.quiet_releases = None if by is None else by - 1, 0
        if "attempt" in data:
            self.noted_attempts = data["attempt"]
            self.refusals = data.get("refused", self.refusals)
            self._lost = self.noted_attempts - self.refusals
        self._in_order = kind in ("asked", "ended", "faulted") or bool(data.get("released"))
        if self._in_order:
            self._claim = by


_KINDS: Mapping[str, type[Any]] = {"elicit": Elicit, "url": OpenUrl, "sample": Sample, "roots": ListRoots}
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
