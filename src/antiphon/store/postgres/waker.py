"""Wakes waiting tasks, and remembers where the next search for tasks whose time has come begins.

A woken task leaves a dead entry in the index of waking tasks, and no vacuum removes it while an older
transaction is open, such as the one of `pg_dump`. So a search begins where the last one ended, and now and
then at the start. This module owns the limits of one process. It does not know why a task waits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from antiphon.store.postgres.claimer import next_full_search
from antiphon.store.postgres.connection import WriteContext
from antiphon.store.postgres.statements import (
    FORMAT,
    escape_text,
    escape_texts,
    index_key,
    sql,
    unescape_text,
)
from antiphon.store.rules import MAX_INT64, EncodedEntry

__all__ = ["WakeTagged", "WakeTasks", "Waker"]

SLACK_MILLISECONDS = 15_000
"""How far a search goes back before the last one; `wake.sql` has the same number. A statement that makes a
task wait takes less."""
_NEVER = -MAX_INT64
"""A time before which no task wakes."""
_MAX_SEARCHES = 16
"""Sets of servers whose limits are kept. A worker has one."""


class WakeTasks(NamedTuple):
    """Wakes tasks of some servers, `None` for all, whose time has come."""

    entry: EncodedEntry
    limit: int
    servers: tuple[str, ...] | None


class WakeTagged(NamedTuple):
    """Wakes tasks that have one of the tags."""

    entry: EncodedEntry
    limit: int
    tags: Sequence[str]


class _Limits(NamedTuple):
    """Where the next search begins."""

    after: int
    """The time up to which all tasks were woken. No task is left out that others were changing meanwhile."""
    full_search_at: float
    """When a search has to begin at the start again."""
    connection: asyncpg.Connection
    """The connection of the search. Another one may lead to a database that was restored from a copy."""


class Waker:
    """Wakes tasks on the connection that writes."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context
        self.limits: dict[tuple[str, ...] | None, _Limits] = {}

    async def wake(self, operation: WakeTasks | WakeTagged) -> list[str]:
        """Wake tasks, and return their ids; raises `StoreUnavailable`."""
        if isinstance(operation, WakeTagged):
            rows = await self._run(operation, [], _NEVER, list(map(index_key, operation.tags)))
        else:
            rows = await self._wake_due(operation)
        return [unescape_text(row["id"]) for row in rows if row["id"] is not None]

    async def _wake_due(self, operation: WakeTasks) -> list[Any]:
        servers, began = operation.servers, time.monotonic()
        connection = await self._context.connection.connect()
        limits = self.limits.pop(servers, None)
        if limits is not None and (limits.connection is not connection or began >= limits.full_search_at):
            limits = None
        rows = await self._search(operation, escape_texts(servers), limits.after if limits else _NEVER)
        full_search_at = limits.full_search_at if limits else next_full_search(began)
        after, skipped = rows[0]["now"] - SLACK_MILLISECONDS, rows[0]["skipped"]
        if skipped is not None:
            after = min(after, skipped - 1)
        while len(self.limits) >= _MAX_SEARCHES:
            del self.limits[next(iter(self.limits))]
        self.limits[servers] = _Limits(after, full_search_at, connection)
        return rows

    async def _search(self, operation: WakeTasks, servers: list[str] | None, after: int) -> list[Any]:
        """Wake tasks whose time has come. Workers search often and rarely find one, so this looks first."""
        if servers is not None:
            context = self._context
            values = (context.clock(), servers, after)
            rows = await context.connection.fetch(sql("has_due_task"), *values, retry=True)
            if not rows[0]["is_due"]:
                return rows
        return await self._run(operation, servers, after, [])

    async def _run(
        self, operation: WakeTasks | WakeTagged, servers: list[str] | None, after: int, tags: list[str]
    ) -> list[Any]:
        context, (kind, data) = self._context, operation.entry
        values = (context.clock(), operation.limit, FORMAT, escape_text(kind), data, servers, after, tags)
        return await context.connection.fetch(
            sql("wake"), *values, context.slot(), context.schema, context.origin
        )
