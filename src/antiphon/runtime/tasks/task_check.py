"""Checks whether the stored record of a task agrees with its log.

Computes the task from its log and compares the two. It must not know which store the task comes from, and it
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antiphon.model.task import State, Task
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.records import ASKING_TAG, parked_fields, server_of_tags
from antiphon.store.contract import Phase
from antiphon.store.scanning import ScannedEntry, ScannedTask, ScannedWaits

__all__ = ["problems_of"]

_KNOWN_FORMAT = 1
"""The format of heads and data that this version reads."""

_PHASES: dict[State, tuple[Phase, ...]] = {
    "working": ("ready",),
    "waiting": ("waiting", "ready"),
    "parked": ("waiting", "ready"),
    "done": ("ended",),
    "faulted": ("ended",),
    "cancelled": ("ended", "ready"),
}
"""The phases that a task in a state may have. A task that was woken is ready while it goes on waiting, and
a cancelled task is ready until a worker has unwound it."""

_CLOCK_SLACK_MS = 60_000
"""How far the clock of the store may be ahead of the clock of this process."""

_COMPARED = (
    "id",
    "tool",
    "created",
    "state",
    "questions",
    "problems",
    "times_asked",
    "result",
    "fault",
    "segments",
    "waits",
)
"""The fields of a head that the log decides. Times are left out: the process that computed the head and the
store that wrote the entry have different clocks."""


def problems_of(task: ScannedTask) -> Iterator[str]:
    """Yield a sentence for each part of a stored task that is damaged or contradicts another part."""
    if max([task.format, *(entry.format for entry in task.log)]) > _KNOWN_FORMAT:
        yield "A newer version of Antiphon has written it: check it with that version."
        return
    yield from _numbering(task)
    head: Task | None = None
    try:
        head = msgspec.json.decode(task.head, type=Task)
    except (ValueError, msgspec.MsgspecError) as error:
        yield f"Its head cannot be read: {error}."
    history = TaskHistory()
    for entry in task.log:
        try:
            history.add(entry.kind, entry.at, msgspec.json.decode(entry.data))  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            yield f"Its entry {entry.number} ({entry.kind}) cannot be read or does not fit: {error}."
            return
    if head is not None:
        yield from _contradictions(task, head, history.task)


def _numbering(task: ScannedTask) -> Iterator[str]:
    """Yield a sentence if entries are missing, or if there are more than the record says."""
    numbers = {entry.number for entry in task.log}
    if missing := sorted(set(range(1, task.version + 1)) - numbers):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield f"Its log has a gap: entry {missing[0]}{more} of {task.version} is missing."
    if extra := [entry for entry in task.log if _is_extra(entry, task)]:
        yield f"Its log has the entry {extra[0].number}, but its record says {task.version} entries."


def _is_extra(entry: ScannedEntry, task: ScannedTask) -> bool:
    return not 1 <= entry.number <= task.version


def _contradictions(task: ScannedTask, head: Task, computed: Task | None) -> Iterator[str]:
    """Yield a sentence for each part of the record that contradicts another one."""
    if (task.id, task.tool, task.created) != (head.id, head.tool, head.created):
        yield "Its row and its head name different ids, tools or times of creation."
    if task.phase not in _PHASES.get(head.state, (task.phase,)):
        yield f"Its phase is {task.phase}, but its state is {head.state}."
    if task.lease > 0 and task.phase != "ready":
        yield f"A worker holds it, but its phase is {task.phase}."
    if computed is None:
        return
    names = [name for name in _COMPARED if getattr(head, name) != getattr(computed, name)]
    if names:
        yield f"Its head is not what its log says: {', '.join(names)}."
    if task.waits is not None and task.phase == "waiting":
        yield from _damaged_waits(task.waits, computed)


def _damaged_waits(waits: ScannedWaits, computed: Task) -> Iterator[str]:
    """Yield a sentence for each reason for which a waiting task would not be found when it should be."""
    fields = parked_fields(computed, "waiting", waits.server or server_of_tags(waits.tags or ()))
    wakes = fields.get("wakes")
    if wakes is None or waits.wakes is None:
        is_due = wakes is waits.wakes
    else:  # a task that begins to wait for a time in the past wakes at once
        is_due = wakes <= waits.wakes <= max(wakes, now_ms() + _CLOCK_SLACK_MS)
    if not is_due:
        yield f"It wakes at {waits.wakes}, but its log says {wakes}, in milliseconds since 1970."
    # Earlier versions do not write the tag for operators.
    if waits.tags is None or {ASKING_TAG, *waits.tags} != {ASKING_TAG, *fields.get("tags", ())}:
        yield "Its tags are not what its log says: those who can answer it, or an event, may not find it."
    elif not waits.are_indexed:
        yield "The index of tags is damaged: those who can answer it, or an event, may not find it."
