"""Creates a new task for the call of an earlier one, on behalf of an operator.

The new task has the arguments, the principal and the client of the earlier task, and nothing else of it: its
journal is empty, so every step runs again and every question is asked again. The earlier task stays as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import InvalidParams
from antiphon.model.task import Task
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.records import head_of, new_task_id
from antiphon.store.contract import Record, Store

__all__ = ["run_again"]

_CALL = ("v", "arguments", "principal", "capabilities", "resume", "fits", "modes", "client")
"""The fields of the first entry that describe the call."""


async def run_again(store: Store, record: Record) -> Task:
    """Create a task with the same call as another one, for any worker that has its tool.

    Raises `InvalidParams` if the log does not say which call created the task.
    """
    entries = await store.read(record.id, limit=1)
    created: Any = entries[0].data if entries and entries[0].kind == "created" else None
    try:
        if not isinstance(created, dict) or not isinstance(created["arguments"], dict):
            raise KeyError("arguments")
        before = msgspec.convert(created["task"], Task)
    except (KeyError, msgspec.ValidationError):
        raise InvalidParams(
            f"Cannot run task {record.id} again: its log does not say which call created it."
        ) from None
    at = now_ms()
    task = Task(
        id=new_task_id(record.tool, at),
        tool=record.tool,
        created=at,
        updated=at,
        ttl=before.ttl,
        poll=before.poll,
        keep=before.keep,
        summary=before.summary,
    )
    journal = Journal()
    _ = journal.id  # reading the id records it, as for every new task
    head = head_of(task)
    entry = {name: created[name] for name in _CALL if name in created}
    await store.create(
        Record(
            id=task.id,
            principal=record.principal,
            tool=record.tool,
            phase="ready",
            version=1,
            created=at,
            updated=at,
            expires=task.expires,
            head=head,
            server=record.server,
            sharer=record.sharer,
        ),
        [("created", {**entry, "task": head, "journal": journal.entries})],
    )
    return task
