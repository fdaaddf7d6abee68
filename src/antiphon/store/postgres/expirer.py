"""Deletes expired tasks and the tallies of old hours, and remembers where the next search for tasks begins.

A deleted task leaves a dead entry in the index of expiring tasks (see `claimer.py`), so a search begins where
the last one ended, and now and then at the start. Owns the limit of one process. Does not know the callers.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from antiphon.store.contract import UNSET, Phase, UnsetType
from antiphon.store.postgres.claimer import next_full_search
from antiphon.store.postgres.connection import WriteContext
from antiphon.store.postgres.statements import sql
from antiphon.store.rules import MAX_INT64
from antiphon.store.tally_rules import HOUR_MILLISECONDS, KEPT_MILLISECONDS, hour_of

__all__ = ["Expire", "Expirer"]

_MAX_EXPIRED_ENTRIES = 5000
"""Entries deleted in one transaction. A task with a longer log is deleted alone."""
_SLACK_MILLISECONDS = 2000
"""How far a search goes back; `expire.sql` has the same number. Now and then it begins at the start, for a
task that another process ended after its time had passed."""
_NEVER = -MAX_INT64
"""A time before which no task expires."""


class Expire(NamedTuple):
    """Deletes expired tasks."""

    limit: int


class Expirer:
    """Deletes tasks on the connection that writes."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context
        self._expired_before = _NEVER
        self._full_search_at = 0.0
        self._merged_before = _NEVER

    async def expire(self, operation: Expire) -> list[Any]:
        """Delete expired tasks with their logs, and return their rows; raises `StoreUnavailable`."""
        began = time.monotonic()
        if began >= self._full_search_at:
            self._expired_before = _NEVER
        context = self._context
        values = (context.clock(), operation.limit, _MAX_EXPIRED_ENTRIES, context.slot())
        rows = await context.connection.fetch(
            sql("expire"), *values, context.schema, context.origin, self._expired_before
        )
        if began >= self._full_search_at:
            self._full_search_at = next_full_search(began)
        await self._merge_hours(rows[0]["now"])
        if rows[0]["key"] is None:
            self._expired_before = rows[0]["now"] - _SLACK_MILLISECONDS
            return []
        self._expired_before = rows[-1]["expires"] - 1
        await context.connection.fetch(sql("delete_entries"), [row["key"] for row in rows], retry=True)
        return rows

    async def _merge_hours(self, now: int) -> None:
        """Delete the numbers of old hours, and add up the rows of ended hours, and those of each sharer."""
        ended = hour_of(now) - HOUR_MILLISECONDS  # other processes may still count in the hour before
        if ended <= self._merged_before:
            return
        values = (self._merged_before, now - KEPT_MILLISECONDS, ended)
        await self._context.connection.fetch(sql("merge_hours"), *values)
        await self._context.connection.fetch(sql("merge_usages"))
        await self._context.connection.fetch(sql("delete_unused"))
        self._merged_before = ended

    def note_phase(self, phase: Phase, expires: int | UnsetType | None = UNSET) -> None:
        """Search from the start again if a task ends whose time has already passed."""
        if phase == "ended" and not (isinstance(expires, int) and expires > self._expired_before):
            self._expired_before = _NEVER
