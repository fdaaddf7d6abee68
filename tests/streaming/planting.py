"""Writes task logs of any length and batch size, without running a tool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from antiphon.model.task import Task
from antiphon.runtime.tasks.records import head_of, phase_of
from antiphon.store.contract import Record, Store


async def planted(
    store: Store,
    batches: Sequence[int],
    *,
    ended: bool = True,
    width: int = 0,
    name: str = "planted",
) -> str:
    """A task that has emitted its numbers, as texts, in batches of these sizes; 0 is another entry.

    One that has not ended is ready for a worker. Texts have a `width`, in characters.
    """
    at = int(time.time() * 1000)
    task = Task(id=f"{name}_{at}", tool="count", created=at, updated=at, ttl=60_000)
    record = Record(task.id, "anyone", "count", "waiting", 0, at, at, at + 60_000, head_of(task))
    who = {"id": "anyone"}
    created = {"v": 1, "task": head_of(task), "arguments": {"n": 0}, "principal": who, "journal": {}}
    await store.create(record, [("created", created)])
    entries: list[tuple[Any, dict[str, Any]]] = []
    for size in batches:
        if size == 0:
            entries.append(("recorded", {"journal": {f"step:{len(entries)}": None}}))
        else:
            entries.append(("emitted", emitted(task.segments + 1, size, width)))
        task = task.after(*entries[-1], at)
    if ended:
        entries.append(("ended", {"result": {"content": [], "is_error": False}}))
        task = task.after(*entries[-1], at)
    if entries:
        await store.append(task.id, entries, expect=1, phase=phase_of(task), head=head_of(task))
    return task.id


def emitted(first: int, size: int, width: int = 0) -> dict[str, Any]:
    """Return an entry with this many segments."""
    blocks = [{"type": "text", "text": str(number).ljust(width)} for number in range(first, first + size)]
    return {"first": first, "blocks": blocks}
