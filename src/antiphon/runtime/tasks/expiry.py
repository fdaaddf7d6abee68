"""Ends tasks that did not finish in time, and deletes tasks whose lifetime is over.

Owns the order: a task that has not ended is cancelled first, and only ended tasks are deleted. A task that
has begun stays for a worker that unwinds its function. Every expiry is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from antiphon.errors import NoTask, Stale, StoreUnavailable
from antiphon.model.task import EntryKind, Task
from antiphon.runtime.tasks.clocks import now_ms, unwinding_deadline
from antiphon.runtime.tasks.records import head_of, task_of
from antiphon.store.contract import Record, Store

__all__ = ["delete_expired", "end_overdue"]

logger = logging.getLogger("antiphon")

_ACTIVITIES = {"working": "running", "waiting": "waiting for an answer", "parked": "parked"}
BATCH_TASKS = 1000
"""How many tasks are read or deleted in one operation."""
_CONCURRENT_ENDS = 100
"""How many tasks are ended at once, so that the store can write them in one commit."""


_UNREADABLE_DELAY_SECONDS = 60.0
"""How long a task that this version cannot read stays out of the way of the others."""


async def end_overdue(
    store: Store,
    stop: Callable[[str], object],
    *,
    server: str | None = None,
    publish: Callable[[Task, Task], object] = lambda before, after: None,
    failing: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """Cancel the tasks that have not ended although their time is over. `stop` stops a run in this process.

    `publish` gets each task before and after its end, to tell those who could answer its questions. Without a
    `server`, cancels the tasks of all servers. Returns the tasks that cannot be written, although others can;
    those that were `failing` before are not logged again. Raises `StoreUnavailable`.
    """
    failed: dict[str, StoreUnavailable] = {}
    while records := await store.overdue(limit=BATCH_TASKS, server=server):
        ended = 0
        for start in range(0, len(records), _CONCURRENT_ENDS):
            some = records[start : start + _CONCURRENT_ENDS]
            ends = await asyncio.gather(*(_try_to_end(store, record, stop, publish) for record in some))
            for record, end in zip(some, ends, strict=True):
                if isinstance(end, StoreUnavailable):
                    failed[record.id] = end
                else:
                    ended += end
            if failed.keys() - failing:
                await store.probe()  # raises in an outage
        if len(records) < BATCH_TASKS or not ended:
            break
    for id in failed.keys() - failing:
        logger.error("Cannot end task %s, which has expired: %s", id, failed[id])
    return frozenset(failed)


async def delete_expired(store: Store, forget: Callable[[str], object]) -> None:
    """Delete the ended tasks whose time is over. `forget` removes a task from the caches of this process.

    Raises `StoreUnavailable`.
    """
    while True:
        deleted = await store.expire(limit=BATCH_TASKS)
        now = now_ms()
        for record in deleted:
            forget(record.id)
            logger.info(
                "Deleted task %s: its lifetime is over. It was created %s ago and ended %s ago.",
                record.id,
                _duration(now - record.created),
                _duration(now - record.updated),
            )
        if len(deleted) < BATCH_TASKS:
            return


async def _try_to_end(
    store: Store, record: Record, stop: Callable[[str], object], publish: Callable[[Task, Task], object]
) -> bool | StoreUnavailable:
    """End a task as `_end` does, or return why it cannot be written."""
    try:
        return await _end(store, record, stop, publish)
    except StoreUnavailable as error:
        return error


async def _end(
    store: Store, record: Record, stop: Callable[[str], object], publish: Callable[[Task, Task], object]
) -> bool:
    """End a task; return false if that is left to another process or to a later moment."""
    try:
        task = task_of(record)
    except msgspec.ValidationError:  # another version wrote it, and can end it
        logger.debug("Cannot end task %s, which has expired: this version cannot read it.", record.id)
        return await _postpone(store, record)
    entry, after = _last_entry(task)
    try:
        await store.append(
            task.id,
            [entry],
            expect=record.version,
            phase="ended",
            head=head_of(after),
            unwind_by=None if task.has_ended else unwinding_deadline(),
        )
    except (Stale, NoTask):  # somebody has changed the task meanwhile: look again at the next tick
        return False
    stop(task.id)
    publish(task, after)
    if task.has_ended:
        logger.warning("Task %s was cancelled, and no worker has unwound its function in time.", task.id)
    else:
        logger.info(
            "Task %s has expired after %s: it was %s, and its lifetime was %s.",
            task.id,
            _duration(now_ms() - task.created),
            _ACTIVITIES[task.state],
            _duration(task.ttl or 0),
        )
    return True


async def _postpone(store: Store, record: Record) -> bool:
    """Look at a task again later, so that the tasks after it are reached; return false if it has changed."""
    later = now_ms() + int(_UNREADABLE_DELAY_SECONDS * 1000)
    try:
        await store.append(
            record.id, [], expect=record.version, phase=record.phase, head=record.head, expires=later
        )
    except (Stale, NoTask):
        return False
    return True


def _last_entry(task: Task) -> tuple[tuple[EntryKind, dict[str, object]], Task]:
    """Return the entry that ends an overdue task, and the task after it."""
    if task.has_ended:  # cancelled, and never unwound
        data: dict[str, object] = {"unwound": False}
        return ("recorded", data), task.after("recorded", data, now_ms())
    data = {"message": f"The task has expired: it did not finish within {_duration(task.ttl or 0)}."}
    return ("cancelled", data), task.after("cancelled", data, now_ms())


def _duration(milliseconds: int) -> str:
    """Return a duration for people, in seconds."""
    return f"{milliseconds / 1000:.3g} s" if milliseconds < 100_000 else f"{milliseconds // 1000} s"
