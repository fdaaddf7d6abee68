"""Scans a PostgreSQL schema in one read-only transaction, as `pg_dump` does. Does not migrate the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres.database import CONNECTION_LOST, Database
from antiphon.store.postgres.statements import index_key, unescape_text
from antiphon.store.scanning import ScannedEntry, ScannedTask, ScannedWaits, scanned_waits, with_logs

__all__ = ["PostgresScan"]

_PREFETCHED_ROWS = 200
"""Rows that one request of a scan returns."""

_COUNTS = "SELECT phase, sum(tasks)::bigint FROM counts GROUP BY phase"
_TASKS = "SELECT key, id, tool, phase, version, created, lease, format, head{waits} FROM tasks ORDER BY key"
_WAITS = """, server, wakes, tags, (
    SELECT coalesce(json_agg(tag), '[]')::text FROM task_tags WHERE task_tags.task = tasks.key
)"""
"""The columns that concern the waits of a task, and the tags that the index has for it."""
_ENTRIES = "SELECT task, number, kind, at, format, data FROM entries ORDER BY task, number"


class PostgresScan:
    """A scan of one schema."""

    def __init__(self, url: str, timeout: float) -> None:
        self._database = Database.from_url(url, timeout)
        self._open = AsyncExitStack()
        self._connection: asyncpg.Connection | None = None
        self._has_waits = True
        self.orphans = 0

    async def __aenter__(self) -> PostgresScan:
        connection = self._connection = await self._database.connect()
        self._open.push_async_callback(connection.close)
        try:
            await self._open.enter_async_context(
                connection.transaction(isolation="repeatable_read", readonly=True)
            )
            name = f"{self._database.schema}.schema_versions"
            if await connection.fetchval("SELECT to_regclass($1)", name) is None:
                raise StoreUnavailable(
                    f"The schema {self._database.schema!r} of {self._database.display_url} has no store."
                )
            name = f"{self._database.schema}.task_tags"
            self._has_waits = await connection.fetchval("SELECT to_regclass($1)", name) is not None
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()
        if isinstance(error, (asyncpg.PostgresError, *CONNECTION_LOST)):
            raise self._database.explain(error, "read") from error

    async def counts(self) -> Mapping[str, int]:
        """Return the number of tasks in each phase, as the processes counted them."""
        return dict(map(tuple, await self._connected().fetch(_COUNTS)))

    async def damages(self) -> list[str]:
        """Return nothing: PostgreSQL refuses to read a damaged page, and then the scan ends with an error."""
        return []

    def tasks(self) -> AsyncIterator[ScannedTask]:
        """Yield every task with its log."""
        return with_logs(
            self,
            self._each(_task, _TASKS.format(waits=_WAITS if self._has_waits else "")),
            self._each(ScannedEntry._make, _ENTRIES),
        )

    async def _each(self, make: Callable[[Any], Any], query: str) -> AsyncIterator[Any]:
        try:
            async for row in self._connected().cursor(query, prefetch=_PREFETCHED_ROWS):
                yield make(row)
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            raise self._database.explain(error, "read to the end") from error

    def _connected(self) -> asyncpg.Connection:
        assert self._connection is not None
        return self._connection


def _task(row: Any) -> ScannedTask:
    key, id, *others = row[:9]
    task = ScannedTask(key, unescape_text(id), *others)
    if len(row) > 9:
        task.waits = _waits(*row[9:])
    return task


def _waits(server: str, wakes: int | None, tags: str | None, indexed: str) -> ScannedWaits:
    found = scanned_waits(unescape_text(server), wakes, tags, indexed, _key)
    return found if found.tags is None else found._replace(tags=tuple(map(unescape_text, found.tags)))


def _key(escaped: str) -> str:
    """Return the key that the index has for an escaped tag."""
    return index_key(unescape_text(escaped))
