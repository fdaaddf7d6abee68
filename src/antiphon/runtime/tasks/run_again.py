"""Creates a new task for the call of an earlier one: anew, or from where a cancelled one stopped.

The new task has the arguments, the principal and the client of the earlier task, which stays as it is. A task
that begins anew has an empty journal, so every step runs again and every question is asked again. A task that
goes on for a cancelled one takes over its journal: the steps that are done, the answers, and the id of which
idempotency keys are made. Its segments are emitted again, and its lifetime begins anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from antiphon.errors import InvalidParams, Stale, TaskNotFound
from antiphon.model.task import Task
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.tasks.claims import read_history
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.records import has_expired, head_of, new_task_id, task_of
from antiphon.store.contract import Claim, Record, Store

__all__ = ["go_on", "run_again", "stops_still"]

_CALL = ("v", "arguments", "principal", "capabilities", "resume", "fits", "modes", "client")
"""The fields of the first entry that describe the call."""
_CONTINUES = "continues"
"""The key, in the first entry, of the id of the cancelled task for which this one goes on."""


async def run_again(store: Store, record: Record) -> Task:
    """Create a task with the same call as another one, for any worker that has its tool.

    Raises `InvalidParams` if the log does not say which call created the task.
    """
    entries = await store.read(record.id, limit=1)
    created: Any = entries[0].data if entries and entries[0].kind == "created" else None
    journal = Journal()
    _ = journal.id  # reading the id records it, as for every new task
    return await _create(store, record, created, new_task_id(record.tool, now_ms()), journal=journal.entries)


async def go_on(
    store: Store, record: Record, admitting: Callable[[Record, int], AbstractAsyncContextManager[None]]
) -> Task:
    """Create the task that goes on for a cancelled one, or return it if there is one already.

    `admitting` accepts a task whose log begins with so many bytes, or raises `Busy`. A worker begins the task
    when the function of the cancelled one has cleaned up: see `stops_still`. If it was cancelled too, the one
    after it goes on. Raises `InvalidParams` like `run_again`, also if that task has ended, and `TaskNotFound`
    if it is gone.
    """
    while True:
        id = _id_after(record)
        found = await store.get(id)
        if found is None:
            history = await read_history(store, Claim(record, 0))
            if history is None:
                raise TaskNotFound(f"Cannot run task {record.id} again: it has expired.")
            journal = {"id": record.id, **history.journal}  # the journals of early versions have no id
            more: dict[str, Any] = {_CONTINUES: record.id}
            if history.responses:
                more["responses"] = history.responses
            try:
                return await _create(
                    store, record, history.created, id, journal=journal, more=more, admitting=admitting
                )
            except Stale:  # another process was quicker
                found = await store.get(id)
        if found is None or has_expired(found):
            raise TaskNotFound(
                f"Cannot run task {record.id} again: the task that went on for it has expired."
            )
        task = task_of(found)
        if not task.has_ended:
            return task
        if task.state != "cancelled":
            has_failed = task.failed or task.state == "faulted"
            raise InvalidParams(
                f"Cannot run task {record.id} again: task {task.id} went on for it, and has "
                f"{'failed. Retry that one.' if has_failed else 'completed.'}"
            )
        record = found


async def stops_still(store: Store, created: Mapping[str, Any]) -> bool:
    """Return whether a task has to wait: the function of the cancelled task before it still cleans up."""
    if (before := created.get(_CONTINUES)) is None:
        return False
    record = await store.get(before)
    return record is not None and record.phase != "ended"


def _id_after(record: Record) -> str:
    """Return the id of the task that goes on for a cancelled one. It is always the same, so there is one.

    Only somebody who knows the id of the cancelled task can guess it.
    """
    digest = hashlib.sha256(f"{record.id} goes on".encode()).hexdigest()
    return f"{record.tool}_{record.created:011x}-{digest[:32]}"


async def _create(
    store: Store,
    record: Record,
    created: Any,
    id: str,
    *,
    journal: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
    admitting: Callable[[Record, int], AbstractAsyncContextManager[None]] | None = None,
) -> Task:
    """Create a task with the call in the first entry of another one, and with a journal.

    Raises `InvalidParams` if the entry does not say which call created the task, and `Stale` if the id is in
    use.
    """
    try:
        if not isinstance(created, Mapping) or not isinstance(created["arguments"], dict):
            raise KeyError("arguments")
        before = msgspec.convert(created["task"], Task)
    except (KeyError, msgspec.ValidationError):
        raise InvalidParams(
            f"Cannot run task {record.id} again: its log does not say which call created it."
        ) from None
    at = now_ms()
    task = Task(
        id=id,
        tool=record.tool,
        created=at,
        updated=at,
        ttl=before.ttl,
        poll=before.poll,
        keep=before.keep,
        summary=before.summary,
    )
    head = head_of(task)
    entry = {name: created[name] for name in _CALL if name in created}
    new = Record(
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
    )
    # Encoded once, to know the size.
    text = msgspec.json.encode({**entry, **(more or {}), "task": head, "journal": dict(journal)})
    async with nullcontext() if admitting is None else admitting(new, len(text)):
        await store.create(new, [("created", msgspec.Raw(text))])
    return task
