"""Compares the store with the notes of what really happened. Reads the store by plain SQL alone.

The rules are the promises of the documentation. `judge` returns one sentence for each violation.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import asyncpg

from tests.soak.notes import Note

__all__ = ["Stored", "judge", "read_store"]

_END_KINDS = ("ended", "faulted", "cancelled")
_MOST_ATTEMPTS = 12
"""How often a step may begin before the judge says that it is tried for ever."""
_ATTEMPTS_BEFORE_GIVING_UP = 5
"""How often the step of a task must have begun before the task may be given up."""

_TASKS = "SELECT key, id, tool, phase, version, worker, lease, head FROM tasks"
_ENTRIES = "SELECT task, number, kind, data FROM entries ORDER BY task, number"


class Stored(NamedTuple):
    """A task as the store has it."""

    id: str
    tool: str
    phase: str
    version: int
    worker: str | None
    lease: int
    head: Mapping[str, Any]
    log: Sequence[tuple[str, Mapping[str, Any]]]

    @property
    def number(self) -> int:
        """The number that the driver gave to the task."""
        return int(self.log[0][1]["arguments"]["number"])

    @property
    def journal(self) -> list[tuple[str, Any]]:
        """Everything that was recorded, in order, with repetitions."""
        return [pair for _, data in self.log for pair in data.get("journal", {}).items()]


async def read_store(url: str) -> dict[str, Stored]:
    """Return all tasks of a store, by id."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            return _assemble(database.execute(_TASKS).fetchall(), database.execute(_ENTRIES).fetchall())
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(f"SET search_path TO {schema}")
        return _assemble(await connection.fetch(_TASKS), await connection.fetch(_ENTRIES))
    finally:
        await connection.close()


def _assemble(tasks: Iterable[Any], entries: Iterable[Any]) -> dict[str, Stored]:
    logs: dict[int, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for key, _, kind, data in entries:
        logs[key].append((kind, json.loads(data)))
    return {
        id: Stored(id, tool, phase, version, worker, lease, json.loads(head), logs[key])
        for key, id, tool, phase, version, worker, lease, head in tasks
    }


def judge(stored: Mapping[str, Stored], acknowledged: Iterable[str], notes: Sequence[Note]) -> list[str]:
    """Return the violations, or an empty list."""
    found = [f"{id}: acknowledged, and the store does not have it" for id in acknowledged if id not in stored]
    by_task: dict[int, dict[str, list[Note]]] = defaultdict(lambda: defaultdict(list))
    for note in notes:
        by_task[note.number][note.step].append(note)
    for task in stored.values():
        steps = by_task[task.number]
        found += _judge_log(task)
        found += _judge_outcome(task, steps)
        found += _judge_steps(task, steps)
    return found


def _judge_log(task: Stored) -> list[str]:
    found = []
    if task.phase != "ended":
        found.append(f"{task.id}: has not ended, it is {task.phase}")
    if task.worker is not None or task.lease:
        found.append(f"{task.id}: is held by {task.worker} although it has ended")
    if task.version != len(task.log):
        found.append(f"{task.id}: has {len(task.log)} entries and says {task.version}")
    ends = [index for index, (kind, _) in enumerate(task.log) if kind in _END_KINDS]
    if len(ends) > 1:
        found.append(f"{task.id}: has ended {len(ends)} times")
    if ends and any(data.get("journal") or kind == "emitted" for kind, data in task.log[ends[0] + 1 :]):
        found.append(f"{task.id}: went on after its end")
    for key, times in Counter(key for key, _ in task.journal).items():
        if times > 1:
            found.append(f"{task.id}: {key} was recorded {times} times")
    number = 1
    for kind, data in task.log:
        if kind == "emitted":
            if data["first"] != number:
                found.append(f"{task.id}: segment {data['first']} follows segment {number - 1}")
            number = data["first"] + len(data["blocks"])
    return found


def _judge_outcome(task: Stored, steps: Mapping[str, Sequence[Note]]) -> list[str]:
    begun = max((len(_begins(notes)) for notes in steps.values()), default=0)
    if task.phase != "ended":
        return []
    if task.tool == "once":
        if begun > 1:
            return [f"{task.id}: is not to be resumed, and its step began {begun} times"]
        return []
    failed = task.head.get("state") != "done" or task.head["result"].get("is_error")
    if failed and begun < _ATTEMPTS_BEFORE_GIVING_UP:
        return [f"{task.id}: was destroyed: {json.dumps(task.head)[:300]}"]
    return []


def _judge_steps(task: Stored, steps: Mapping[str, Sequence[Note]]) -> list[str]:
    found = []
    results = {value for key, value in task.journal if key.startswith("step:")}
    ended = {note.run for notes in steps.values() for note in notes if note.event == "end"}
    if missing := results - ended:
        found.append(f"{task.id}: has results of steps that never ended: {missing}")
    for step, notes in steps.items():
        if len({note.key for note in notes}) > 1:
            found.append(f"{task.id}: the idempotency key of {step!r} has changed")
        begins = _begins(notes)
        if len(begins) > _MOST_ATTEMPTS:
            found.append(f"{task.id}: {step!r} began {len(begins)} times")
        recorded = [note for note in notes if note.event == "end" and note.run in results]
        if task.head.get("state") == "done" and not recorded:
            found.append(f"{task.id}: is done, and {step!r} is not recorded")
    order = sorted((min(note.at for note in notes), step) for step, notes in steps.items())
    for (_, step), (follower_began, follower) in itertools.pairwise(order):
        late = [note for note in _begins(steps[step]) if note.at > follower_began]
        if late:
            found.append(f"{task.id}: {step!r} began again in process {late[0].process} after {follower!r}")
    return found


def _begins(notes: Sequence[Note]) -> list[Note]:
    return [note for note in notes if note.event == "begin"]
