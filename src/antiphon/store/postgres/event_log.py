"""Adds events, and deletes the events whose time has passed.

Remembers up to which time the old events were deleted, because deleted events leave dead entries in an index
(see `claimer.py`). Reading events is the reader's work. Does not know who reads them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from antiphon.store.postgres.claimer import next_full_search
from antiphon.store.postgres.connection import WriteContext
from antiphon.store.postgres.statements import FORMAT, columns, escape_text, index_key, sql
from antiphon.store.rules import MAX_INT64

__all__ = ["AddEvent", "EventLog"]

_OLD_EVENTS_PER_NEW_EVENT = 4
"""Expired events deleted for each new event: more than one, so that the table shrinks."""
_MAX_OLD_EVENTS = 1000
"""Expired events deleted in one transaction."""
_SLACK_MILLISECONDS = 2000
"""How far a search for expired events goes back before the last one."""


class AddEvent(NamedTuple):
    """Adds an event to a topic."""

    topic: str
    id: str
    data: str
    until: int
    number: int | None = None
    """The number of an event of another store."""
    at: int | None = None
    """When an event of another store was added."""


class EventLog:
    """Writes events on the connection that writes."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context
        self._deleted_until = -MAX_INT64
        self._full_search_at = 0.0

    async def add(self, events: Sequence[AddEvent]) -> list[bool]:
        """Add events; return for each whether its topic had no event of the same id."""
        rows = [
            (index_key(event.topic), index_key(event.id), escape_text(event.id), event.until, event.data)
            for event in events
        ]
        moved = [(_long_topic(event.topic), event.number, event.at) for event in events]
        values = (self._context.clock(), FORMAT, *columns(rows, 5), self._context.schema, *columns(moved, 3))
        found = await self._context.connection.fetch(sql("add_events"), *values)
        added = {(row["topic"], row["id_key"]) for row in found}
        return [row[:2] in added for row in rows]

    async def delete_old(self, limit: int = _MAX_OLD_EVENTS) -> None:
        """Delete up to `limit` events whose time has passed."""
        began = time.monotonic()
        is_full = began >= self._full_search_at
        after = -MAX_INT64 if is_full else self._deleted_until
        values = (self._context.clock(), limit, after)
        rows = await self._context.connection.fetch(sql("delete_events"), *values, retry=True)
        if is_full:
            self._full_search_at = next_full_search(began)
        last = rows[0]["last_deleted"]
        self._deleted_until = rows[0]["now"] - _SLACK_MILLISECONDS if last is None else last - 1

    async def delete_old_for(self, added: int) -> None:
        """Delete a few old events for each event that was added."""
        await self.delete_old(_OLD_EVENTS_PER_NEW_EVENT * added)


def _long_topic(topic: str) -> str | None:
    """Return a topic of which the table has a digest only; `None` for a shorter one."""
    escaped = escape_text(topic)
    return None if index_key(topic) == escaped else escaped
