"""Scans an SQLite file in one read transaction. Reads files of earlier schemas too, and migrates nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any

from antiphon.errors import StoreUnavailable
from antiphon.store.scanning import ScannedEntry, ScannedTask, scanned_waits, with_logs
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.migrations import schema_version, scripts

__all__ = ["SQLiteScan"]

_MAX_DAMAGES = 20
"""How many damages SQLite names."""


_WAITS = """, server, wakes, tags, (
    SELECT json_group_array(tag) FROM task_tags
    WHERE task_tags.task = task_rows.key AND task_tags.created = task_rows.created
)"""
"""The columns that concern the waits of a task, and the tags that the index has for it."""


class SQLiteScan:
    """A scan of one file. Blocks the event loop, which has nothing else to do during a check."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        self._database = Database(path, busy_timeout)
        self._connection: sqlite3.Connection | None = None
        self._table = "task_rows"
        self._has_waits = True
        self.orphans = 0

    async def __aenter__(self) -> SQLiteScan:
        try:
            connection = self._connection = self._database.connect("read")
            connection.text_factory = _decode
            connection.execute("BEGIN")  # all reads see the state of one moment
            version = schema_version(self._database, connection, len(scripts()))
            if version == 0:
                raise StoreUnavailable(f"The file {self._database.path} is empty: no server has used it yet.")
            if not self._rows("SELECT 1 FROM sqlite_schema WHERE name = 'task_rows'"):
                self._table = "tasks"
            self._has_waits = bool(self._rows("SELECT 1 FROM sqlite_schema WHERE name = 'task_tags'"))
        except BaseException as error:
            self._close()
            if isinstance(error, sqlite3.Error | OSError):
                raise self._database.explain(error, "read") from error
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if isinstance(error, sqlite3.Error | OSError):
            raise self._database.explain(error, "read") from error

    async def counts(self) -> Mapping[str, int]:
        """Return the number of tasks in each phase, as the store counted them."""
        return dict(self._rows("SELECT phase, tasks FROM counts"))

    async def damages(self) -> list[str]:
        """Return what SQLite finds damaged, such as an index without an entry for a row."""
        try:
            found = [text for (text,) in self._rows(f"PRAGMA integrity_check({_MAX_DAMAGES})")]
        except sqlite3.DatabaseError as error:  # so damaged that SQLite cannot check all of it
            return [str(error)]
        return [] if found == ["ok"] else found

    def tasks(self) -> AsyncIterator[ScannedTask]:
        """Yield every task with its log."""
        waits = _WAITS if self._has_waits else ""
        tasks = f"""SELECT key, id, tool, phase, version, created, lease, format, head{waits}
            FROM {self._table} ORDER BY key"""  # nosec B608 # one of two names
        entries = "SELECT task, number, kind, at, format, data FROM entries ORDER BY task, number"
        return with_logs(self, self._each(_task, tasks), self._each(ScannedEntry._make, entries))

    async def _each(self, make: Callable[[Any], Any], query: str) -> AsyncIterator[Any]:
        try:
            for row in self._connected().execute(query):
                yield make(row)
        except sqlite3.Error as error:
            raise self._database.explain(error, "read to the end") from error

    def _rows(self, query: str) -> list[Any]:
        return self._connected().execute(query).fetchall()

    def _connected(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _task(row: Any) -> ScannedTask:
    task = ScannedTask(*row[:9])
    if len(row) > 9:
        server, wakes, tags, indexed = row[9:]
        task.waits = scanned_waits(server, wakes, tags, indexed, str)
    return task


def _decode(text: bytes) -> str:
    """Decode text that may not be UTF-8. Text that is not cannot be read as JSON afterwards."""
    return text.decode(errors="surrogateescape")
