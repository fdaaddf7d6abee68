"""Deletes ended tasks before their lifetime is over, for an operator who needs the space.

A task is first made to expire and then deleted, as every expired task is. So a process that stops in between
leaves nothing behind. It must not know which store the tasks are in.
"""

from __future__ import annotations

import asyncio

import msgspec

from antiphon.errors import NoTask, Stale
from antiphon.store.contract import Record, Store, TaskFilter

__all__ = ["prune"]

_BATCH_TASKS = 100
"""How many tasks are read and written at once, so that the store can write them in one commit."""


async def prune(store: Store, filter: TaskFilter, *, ended_before: int, principal: str | None = None) -> int:
    """Delete the tasks that match a filter and ended before a time; return how many there were.

    Also deletes the tasks whose lifetime is over. Raises `StoreUnavailable`.
    """
    created_before = min(ended_before, filter.created_before or ended_before)
    wanted = msgspec.structs.replace(filter, phase="ended", created_before=created_before)
    count, cursor = 0, None
    while True:
        page = await store.list(principal, cursor=cursor, limit=_BATCH_TASKS, filter=wanted)
        old = [record for record in page.records if record.updated < ended_before]
        count += sum(await asyncio.gather(*(_let_expire(store, record, ended_before) for record in old)))
        if (cursor := page.cursor) is None:
            break
    while await store.expire():
        pass
    return count


async def _let_expire(store: Store, record: Record, at: int) -> bool:
    """Make an ended task expire at a time in the past; return false if somebody has changed it meanwhile."""
    try:
        await store.append(record.id, [], expect=record.version, phase="ended", head=record.head, expires=at)
    except (Stale, NoTask):
        return False
    return True
