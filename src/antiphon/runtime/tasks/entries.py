"""Appends entries to the logs of tasks that this process does not hold, and checks what goes into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.errors import InvalidParams
from antiphon.model.task import ANSWERED_IN, EntryKind, Task
from antiphon.runtime.tasks.clocks import now_ms, unwinding_deadline
from antiphon.runtime.tasks.records import expiry_after, head_of, parked_fields, phase_of, server_of_tags
from antiphon.runtime.tasks.task_trace import current_span
from antiphon.runtime.writable import MAX_NESTING, is_nested_deeply
from antiphon.store.contract import Phase, Record, Store

__all__ = ["answer_deadline", "append_entry", "check_nesting"]


async def append_entry(
    store: Store, record: Record, task: Task, kind: EntryKind, data: Mapping[str, Any], *, server: str | None
) -> Task:
    """Append an entry to the log of a task as it was read; return the task after it.

    Raises `Stale` if the task has changed meanwhile, `NoTask` if it is gone, and `TooLate` for an answer
    after the deadline of its question.
    """
    runs = kind == "answered" and record.phase == "ready"  # a task that was woken runs while it waits
    if runs:
        data = {**data, "late": True}
    if kind == "answered" and (span := current_span()) is not None:
        data = {**data, ANSWERED_IN: span}
    after = task.after(kind, data, now_ms())
    phase: Phase = "ready" if runs else phase_of(after)
    await store.append(
        task.id,
        [(kind, data)],
        expect=record.version,
        phase=phase,
        head=head_of(after),
        expires=expiry_after(task, after),
        unwind_by=unwinding_deadline() if kind == "cancelled" else None,
        before=answer_deadline(task, data) if kind == "answered" else None,
        **parked_fields(after, phase, server or record.server or server_of_tags(record.tags)),
    )
    return after


def answer_deadline(task: Task, data: Mapping[str, Any]) -> int | None:
    """Return the first deadline of the questions that an entry answers; `None` if they have none."""
    waits = (task.waits.get(key) for key in (*data["responses"], *data.get("others", ())))
    deadlines = (wait.deadline for wait in waits if wait is not None and wait.deadline is not None)
    return min(deadlines, default=None)


def check_nesting(data: Any, what: str) -> None:
    """Raise `InvalidParams` for data that one worker could store, and another one could not read."""
    if is_nested_deeply(data):
        raise InvalidParams(f"The {what} are nested too deeply: a task takes at most {MAX_NESTING} levels.")
