"""Wakes parked tasks: those whose time has come, and those that wait for an event.

An event is kept for a while, so that a task can also wait for it later. Each task gets it once.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from antiphon.runtime.execution.waiting import Duration, milliseconds
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.entries import check_nesting
from antiphon.runtime.tasks.records import event_of_topic, event_tag
from antiphon.store.contract import Store

__all__ = ["KEEP_EVENTS_SECONDS", "MIN_KEEP_SECONDS", "send_event", "wake_due", "wake_for_event"]

KEEP_EVENTS_SECONDS = 7 * 86400.0
"""How long an event is kept for tasks that wait for it later."""

MIN_KEEP_SECONDS = 600.0
"""How long an event is kept at least: a task that waited for it may have to wait for a worker after that."""

_BATCH_TASKS = 1000
"""How many tasks are woken in one operation."""


async def wake_due(store: Store, *, server: str | None) -> None:
    """Queue the parked tasks whose time has come; raises `StoreUnavailable`."""
    while len(await store.wake(("woken", {}), limit=_BATCH_TASKS, server=server)) == _BATCH_TASKS:
        pass


async def send_event(
    store: Store,
    server: str,
    name: str,
    key: str,
    data: Any,
    *,
    id: str | None,
    keep: Duration,
    max_bytes: int,
) -> bool:
    """Keep an event, and wake the tasks that wait for it; return false if the id was sent before.

    Wakes the tasks in any case: an earlier sender may have been lost in between. Raises `ValueError` for an
    event that cannot be kept or has more than `max_bytes` bytes, and `StoreUnavailable`.
    """
    check_nesting(data, "data")
    topic, id = event_tag(server, name, key), secrets.token_hex(16) if id is None else id
    until = now_ms() + max(milliseconds(keep, "keep"), milliseconds(MIN_KEEP_SECONDS, "keep"))
    size = len(topic.encode()) + len(id.encode()) + len(msgspec.json.encode(data))
    if size > max_bytes:
        raise ValueError(
            f"The event {name!r} has {size} bytes, and at most {max_bytes} are allowed: send the address of "
            "the data in place of the data, or raise Limits.max_event_bytes."
        )
    is_new = await store.add_event(topic, id, data, until=until)
    await wake_for_event(store, topic)
    return is_new


async def wake_for_event(store: Store, topic: str) -> None:
    """Queue the parked tasks that wait for an event of a topic; raises `StoreUnavailable`."""
    woken = ("woken", {"event": list(event_of_topic(topic))})
    while len(await store.wake_tagged([topic], woken, limit=_BATCH_TASKS)) == _BATCH_TASKS:
        pass
