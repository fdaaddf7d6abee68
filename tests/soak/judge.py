"""Compares the store with what the tools did and what the callers saw. Reads the store by plain SQL alone.

The rules are the promises of the documentation, a function each; `RULES` has all of them. A rule looks at one
task, and says what is wrong in one sentence for each violation.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg

from tests.soak.fleet import Death
from tests.soak.notes import Note, Seen

__all__ = ["RULES", "Case", "Evidence", "Stored", "Violation", "judge", "read_store", "show"]

_END_KINDS = ("ended", "faulted", "cancelled")
_STATUSES = {"done": "completed", "faulted": "failed", "cancelled": "cancelled"}
"""How callers of 2026-07-28 see the states of a task that has ended."""
_MOST_BEGINNINGS = 25
"""How often a step may begin before the judge says that it is tried for ever."""
_MOST_DEADLY_ATTEMPTS = 5 + 6
"""How many processes a task may take with it that ends each of them: with those that it takes until it is
alone, because half as many suspects run beside it each time, and the processes run 40 tasks."""
_ROUNDING_SECONDS = 0.01
"""By how much a clock that counts milliseconds may differ from one that does not."""

_TASKS = "SELECT key, id, tool, phase, version, worker, lease, head FROM tasks"
_ENTRIES = "SELECT task, number, kind, at, data FROM entries ORDER BY task, number"


class Logged(NamedTuple):
    """An entry of a log."""

    kind: str
    at: int
    data: Mapping[str, Any]


class Stored(NamedTuple):
    """A task as the store has it."""

    id: str
    tool: str
    phase: str
    version: int
    worker: str | None
    lease: int
    head: Mapping[str, Any]
    log: Sequence[Logged]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the call."""
        return dict(self.log[0].data["arguments"])

    @property
    def number(self) -> int:
        """The number that the driver gave to the task."""
        return int(self.arguments["number"])

    @property
    def journal(self) -> list[tuple[str, Any]]:
        """Everything that was recorded, in order, with repetitions."""
        return [pair for entry in self.log for pair in entry.data.get("journal", {}).items()]

    @property
    def state(self) -> str:
        """The state of the task."""
        return str(self.head.get("state", "working"))

    @property
    def is_done(self) -> bool:
        """Whether the tool has returned."""
        return self.state == "done" and not self.head["result"].get("is_error")

    @property
    def text(self) -> str:
        """What the tool has returned."""
        return "\n".join(block.get("text", "") for block in self.head["result"]["content"])

    @property
    def segments(self) -> list[str]:
        """The texts of the segments. The last ones are in the result if the function ended with them."""
        blocks = [block for entry in self.log if entry.kind == "emitted" for block in entry.data["blocks"]]
        result = self.head.get("result") or {}
        if last := result.get("emitted", 0):
            blocks += result["content"][:last]
        return [block["text"] for block in blocks]


async def read_store(url: str) -> dict[str, Stored]:
    """Return all tasks of a store, by id."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as database:
            return _assemble(database.execute(_TASKS).fetchall(), database.execute(_ENTRIES).fetchall())
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(f"SET search_path TO {schema}")
        return _assemble(await connection.fetch(_TASKS), await connection.fetch(_ENTRIES))
    finally:
        await connection.close()


def _assemble(tasks: Iterable[Any], entries: Iterable[Any]) -> dict[str, Stored]:
    logs: dict[int, list[Logged]] = defaultdict(list)
    for key, _, kind, at, data in entries:
        logs[key].append(Logged(kind, at, json.loads(data)))
    return {
        id: Stored(id, tool, phase, version, worker, lease, json.loads(head), logs[key])
        for key, id, tool, phase, version, worker, lease, head in tasks
    }


@dataclass
class Evidence:
    """Everything that is known about a run."""

    stored: Mapping[str, Stored]
    notes: Sequence[Note] = ()
    seen: Sequence[Seen] = ()
    deaths: Sequence[Death] = ()
    has_right_clocks: bool = True
    """Whether no fault set a clock, so that sleeps can be compared with the clock of the notes."""


@dataclass
class Case:
    """What is known about one task."""

    task: Stored
    notes: Sequence[Note] = ()
    seen: Sequence[Seen] = ()
    sent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The events that were acknowledged, by key, in order."""
    has_right_clocks: bool = True

    @property
    def steps(self) -> Mapping[str, Sequence[Note]]:
        """The notes by step."""
        found: dict[str, list[Note]] = defaultdict(list)
        for note in self.notes:
            found[note.step].append(note)
        return found

    def saw(self, event: str, *outcomes: str) -> list[Seen]:
        """Return what callers saw."""
        return [
            each
            for each in self.seen
            if each.event == event and each.outcome in (outcomes or (each.outcome,))
        ]


class Violation(NamedTuple):
    """A promise that was broken."""

    rule: str
    task: str | None
    sentence: str

    def __str__(self) -> str:
        return f"{self.task or 'the service'}: {self.sentence} ({self.rule})"


def judge(evidence: Evidence) -> list[Violation]:
    """Return the violations, or an empty list."""
    seen: dict[str, list[Seen]] = defaultdict(list)
    sent: dict[str, list[str]] = defaultdict(list)
    for each in evidence.seen:
        seen[each.task].append(each)
        if each.event == "sent" and each.outcome == "acknowledged":
            sent[each.task].append(each.value)
    notes: dict[int, list[Note]] = defaultdict(list)
    for note in evidence.notes:
        notes[note.number].append(note)
    found = [
        Violation("kept", id, "was acknowledged, and the store does not have it")
        for id, events in seen.items()
        if any(each.event == "created" for each in events) and id not in evidence.stored
    ]
    deadly = {note.process for note in evidence.notes if note.step == "deadly"}
    found += [
        Violation("alive", None, f"process {death.process} ended by itself with {death.code}")
        for death in evidence.deaths
        if death.cause is None and death.process not in deadly
    ]
    for task in evidence.stored.values():
        case = Case(task, notes[task.number], seen[task.id], sent, evidence.has_right_clocks)
        found += [Violation(name, task.id, wrong) for name, rule in RULES.items() for wrong in rule(case)]
    return found


def show(id: str | None, evidence: Evidence) -> str:
    """Return what is known about a task, or about all processes, in the order in which it happened."""
    task = evidence.stored.get(id or "")
    lines = [f"== {id or 'the service'}"]
    if task is not None:
        lines += [
            f"   {task.tool} {json.dumps(task.arguments)}, {task.phase}: {json.dumps(task.head)[:1500]}"
        ]
        lines += [
            f"   log {number}: {entry.kind} at {entry.at} {json.dumps(entry.data)[:600]}"
            for number, entry in enumerate(task.log, 1)
        ]
    number = None if task is None else task.number
    happened: list[tuple[float, str]] = [
        *((note.at, f"tool {note}") for note in evidence.notes if note.number == number),
        *((seen.at, f"caller {seen}") for seen in evidence.seen if seen.task == id),
    ]
    if happened:
        began, ended = min(happened)[0] - 5, max(happened)[0] + 5
        happened += [(death.at, f"{death}") for death in evidence.deaths if began < death.at < ended]
    elif task is None:
        happened += [(death.at, f"{death}") for death in evidence.deaths]
    return "\n".join([*lines, *(f"   {at:.3f} {text[:600]}" for at, text in sorted(happened))])


# The rules. Each gets all that is known about a task.


def _ended(case: Case) -> Iterator[str]:
    """Every task ends, and nobody holds it then."""
    task = case.task
    if task.phase != "ended":
        yield f"has not ended, it is {task.phase} and says {task.head.get('message')!r}"
    elif task.worker is not None or task.lease:
        yield f"is held by {task.worker} although it has ended"
    if task.version != len(task.log):
        yield f"has {len(task.log)} entries and says {task.version}"


def _one_end(case: Case) -> Iterator[str]:
    """No task ends twice, or goes on after its end."""
    log = case.task.log
    ends = [index for index, entry in enumerate(log) if entry.kind in _END_KINDS]
    if len(ends) > 1:
        yield f"has ended {len(ends)} times"
    if ends and any(entry.data.get("journal") or entry.kind == "emitted" for entry in log[ends[0] + 1 :]):
        yield "went on after its end"


def _recorded_once(case: Case) -> Iterator[str]:
    """Nothing is recorded twice: no step, answer, sleep or event."""
    for key, times in Counter(key for key, _ in case.task.journal).items():
        if times > 1:
            yield f"{key} was recorded {times} times"


def _outcome(case: Case) -> Iterator[str]:
    """A healthy task ends with the result of its tool. One that ends its process is given up, and so is one
    that is not to be resumed and whose worker was lost."""
    task = case.task
    if task.phase != "ended" or task.state == "cancelled":
        return  # other rules
    if task.tool == "deadly":
        if task.state != "faulted" or "given up" not in task.head["fault"]["message"]:
            yield f"ends its process and was not given up: {json.dumps(task.head)[:300]}"
    elif task.tool == "once" and not task.is_done:
        if "resume=False" not in json.dumps(task.head):
            yield f"was destroyed: {json.dumps(task.head)[:300]}"
    elif not task.is_done:
        yield f"was destroyed: {json.dumps(task.head)[:300]}"
    elif task.tool != "stream" and not task.text.startswith(f"{task.tool} {task.number}"):
        yield f"has another result: {task.text!r}"


def _results(case: Case) -> Iterator[str]:
    """What the journal has as the result of a step was returned by a run of the step that ended."""
    results = {json.dumps(value) for key, value in case.task.journal if key.startswith("step:")}
    ended = [note.run for note in case.notes if note.event == "end"]
    if missing := [result for result in results if not any(run in result for run in ended)]:
        yield f"has results of steps that never ended: {missing}"
    if case.task.is_done:
        for step, notes in case.steps.items():
            if not any(note.run in result for note in notes for result in results):
                yield f"is done, and {step!r} is not recorded"


def _keys(case: Case) -> Iterator[str]:
    """The idempotency key of a step is the same in every run."""
    for step, notes in case.steps.items():
        if len({note.key for note in notes}) > 1:
            yield f"the idempotency key of {step!r} has changed"


def _tried(case: Case) -> Iterator[str]:
    """No step is tried for ever, and one that is not to be resumed once."""
    most = {"once": 1, "deadly": _MOST_DEADLY_ATTEMPTS}.get(case.task.tool, _MOST_BEGINNINGS)
    for step, notes in case.steps.items():
        if len(begun := _begins(notes)) > most:
            yield f"{step!r} began {len(begun)} times, and may {most} times"


def _no_step_again(case: Case) -> Iterator[str]:
    """No step begins again after the one behind it, or after a caller saw the end of the task."""
    order = sorted((min(note.at for note in notes), step) for step, notes in case.steps.items())
    for (_, step), (follower_began, follower) in itertools.pairwise(order):
        late = [note for note in _begins(case.steps[step]) if note.at > follower_began]
        if late:
            yield f"{step!r} began again in process {late[0].process} after {follower!r}"
    if ends := case.saw("ended", "completed", "failed"):
        end = min(each.at for each in ends)
        if late := [note for note in _begins(case.notes) if note.at > end]:
            yield f"{late[0].step!r} began in process {late[0].process} after a caller saw the end"


def _segments(case: Case) -> Iterator[str]:
    """Segments are numbered without gaps, and each reader sees them so, to the last one."""
    number = 1
    for entry in case.task.log:
        if entry.kind == "emitted":
            if entry.data["first"] != number:
                yield f"segment {entry.data['first']} follows segment {number - 1}"
            number = entry.data["first"] + len(entry.data["blocks"])
    said = list(enumerate(case.task.segments, 1))
    readers: dict[str, list[Seen]] = defaultdict(list)
    for each in case.saw("segments"):
        readers[each.caller].append(each)
    for reader, parts in readers.items():
        found = [tuple(segment) for part in parts for segment in part.value]
        if found != said[: len(found)]:
            yield f"{reader} saw {found}, and the log has {said}"
        elif parts[-1].outcome == "ended" and len(found) < len(said):
            yield f"{reader} saw the end and {len(found)} of {len(said)} segments"


def _answers(case: Case) -> Iterator[str]:
    """Of different answers one is acknowledged, and the run gets it. None is refused that the run gets."""
    answers: dict[str, set[str]] = defaultdict(set)
    for each in case.saw("answered"):
        answers[each.outcome].add(each.caller)
    if len(acknowledged := answers["acknowledged"]) > 1:
        yield f"{len(acknowledged)} different answers were acknowledged: {sorted(acknowledged)}"
    is_result = case.task.is_done and case.task.text.startswith(f"{case.task.tool} ")  # else another rule
    if not is_result or not any(answers.values()):
        return
    got = case.task.text.rpartition(" ")[2]
    if acknowledged and got not in acknowledged:
        yield f"the run got the answer {got!r}, and {sorted(acknowledged)} was acknowledged"
    elif not acknowledged and got not in answers["lost"]:
        yield f"the run got the answer {got!r}, which nobody gave"
    if got in answers["refused"] - acknowledged - answers["lost"]:
        yield f"the run got the answer {got!r}, which was refused"


def _cancellations(case: Case) -> Iterator[str]:
    """A task is cancelled if a caller was told so, and has another end if all were refused. If it is taken,
    it is cancelled or has ended."""
    told = Counter(each.outcome for each in case.saw("cancelled"))
    is_cancelled = case.task.state == "cancelled"
    if told["acknowledged"] and not is_cancelled:
        yield f"its cancellation was acknowledged, and it is {case.task.state}"
    taken = min((each.at for each in case.saw("cancelled", "taken")), default=None)
    if taken is not None and not is_cancelled and any(note.at > taken for note in case.notes):
        yield f"its cancellation was taken before it had ended, and it is {case.task.state}"
    if is_cancelled and told["refused"] == sum(told.values()) > 0:
        yield "its cancellation was refused, and it is cancelled"
    if is_cancelled and not told:
        yield "is cancelled, and nobody asked for it"


def _callers(case: Case) -> Iterator[str]:
    """All callers see the same end, the one in the store, and none is told that there is no such task."""
    for each in case.saw("missing"):
        yield f"{each.caller} was told: {each.value}"
    ends = case.saw("ended")
    if different := {each.outcome for each in ends} - {_STATUSES.get(case.task.state)}:
        yield f"callers saw it {sorted(different)}, and it is {case.task.state}"
    if len(values := {json.dumps(each.value, sort_keys=True) for each in ends}) > 1:
        yield f"callers saw {len(values)} different ends: {sorted(values)}"


def _sleeps(case: Case) -> Iterator[str]:
    """A sleeper wakes once for each sleep, and not before its time by the clock of the store."""
    until: int | None = None
    for entry in case.task.log:
        if entry.kind in ("parked", "asked"):
            until = min(
                (wait["until"] for wait in entry.data.get("waits", {}).values() if wait.get("until")),
                default=None,
            )
        elif entry.kind == "woken" and "event" not in entry.data:
            if until is None:
                yield "was woken again for the same sleep"
            elif entry.at < until:
                yield f"was woken at {entry.at}, {until - entry.at} ms early"
            until = None
    if not case.has_right_clocks:
        return
    order = sorted((min(note.at for note in notes), step) for step, notes in case.steps.items())
    for (_, step), (began, follower) in itertools.pairwise(order):
        word, _, seconds = follower.partition(" ")
        if word == "napped":
            # The end of the run whose result counts is not known here: the first one is the earliest.
            ended = min((note.at for note in case.steps[step] if note.event == "end"), default=began)
            if began - ended < float(seconds) - _ROUNDING_SECONDS:
                yield f"slept {began - ended:.3f} of {seconds} s"


def _events(case: Case) -> Iterator[str]:
    """Each task that waits for events gets every one, once and in order."""
    task = case.task
    if "topic" not in task.arguments or not task.is_done or not task.text.startswith(f"{task.tool} "):
        return  # other rules
    expected = list(case.sent[task.arguments["topic"]])
    got = task.text.split()[2:]
    if task.tool == "careful":
        got.pop()  # its answer
    if got != expected:
        yield f"got the events {got}, and {expected} were sent"


def _no_compensation(case: Case) -> Iterator[str]:
    """No task undoes what it did because its tool has changed, or because the store was away."""
    if begun := _begins(case.steps.get("refund", ())):
        yield f"paid back in process {begun[0].process} ({begun[0].build})"


RULES: Mapping[str, Callable[[Case], Iterator[str]]] = {
    "it ends": _ended,
    "one end": _one_end,
    "recorded once": _recorded_once,
    "outcome": _outcome,
    "results": _results,
    "idempotency keys": _keys,
    "attempts": _tried,
    "no step again": _no_step_again,
    "segments": _segments,
    "answers": _answers,
    "cancellations": _cancellations,
    "callers agree": _callers,
    "sleeps": _sleeps,
    "events": _events,
    "no compensation": _no_compensation,
}


def _begins(notes: Sequence[Note]) -> list[Note]:
    return [note for note in notes if note.event == "begin"]
