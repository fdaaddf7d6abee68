"""Artifacts in an SQLite file: the file of the task store, or a separate one.

Owns two tables, created when the store is opened; the other tables of the file belong to the task store. One
thread runs all statements, and each chunk is its own transaction, so that writers of tasks in the same file
never wait long.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

from antiphon.errors import StoreUnavailable
from antiphon.store.artifacts.contract import MANY
from antiphon.store.artifacts.database import DatabaseArtifacts
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.free_space import release_free_pages
from antiphon.store.sqlite.migrations import prepare

__all__ = ["SQLiteArtifacts"]

T = TypeVar("T")
_Statement: TypeAlias = tuple[str, Mapping[str, Any]]

_TABLES = (
    """CREATE TABLE IF NOT EXISTS artifact (
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        created INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        size INTEGER,  -- none while it is being written
        record BLOB NOT NULL,
        PRIMARY KEY (principal, id)
    ) STRICT""",
    "CREATE INDEX IF NOT EXISTS artifact_of ON artifact (principal, created, id)",
    "CREATE INDEX IF NOT EXISTS artifact_expires ON artifact (expires)",
    """CREATE TABLE IF NOT EXISTS artifact_chunk (
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        UNIQUE (principal, id, number)
    ) STRICT""",
)


class SQLiteArtifacts(DatabaseArtifacts):
    """An artifact store that processes on one machine may share."""

    def __init__(self, path: str, *, busy_timeout: float = 5.0) -> None:
        self._database = Database(path, busy_timeout=busy_timeout)
        self._thread: ThreadPoolExecutor | None = None
        self.connection: sqlite3.Connection | None = None
        """The connection of the thread; `None` while the store is closed."""

    async def open(self) -> None:
        """Open the file, and create it if it does not exist."""
        self._database.check()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="antiphon-artifacts")
        await self._run("opened", self._open)

    async def close(self) -> None:
        """Close the file."""
        if self.connection is not None:
            await self._run("closed", self.connection.close)
        if self._thread is not None:
            self._thread.shutdown()
        self._thread = self.connection = None

    async def sweep(self, *, now: int, max_total_bytes: int, max_artifacts: int = MANY) -> None:
        """Delete expired artifacts, evict others beyond the limits, and release the space of deleted ones."""
        await super().sweep(now=now, max_total_bytes=max_total_bytes, max_artifacts=max_artifacts)
        await self._run("written", lambda: release_free_pages(self._database))

    # These methods run on the thread.

    def _open(self) -> None:
        prepare(self._database)
        connection = self._database.connect("write")
        connection.execute("PRAGMA cache_size = -2048")  # small: chunks are rarely read again soon
        self.connection = connection
        for statement in _TABLES:
            self._database.retry_while_busy(partial(connection.execute, statement))

    def _delete_all(self, owners: list[tuple[str, str]]) -> None:
        for owner in owners:
            self._transact(
                _with_numbers("DELETE FROM artifact WHERE principal = $1 AND id = $2", owner),
                _with_numbers("DELETE FROM artifact_chunk WHERE principal = $1 AND id = $2", owner),
            )

    def _transact(self, *statements: _Statement) -> None:
        connection = self.connection
        assert connection is not None
        self._database.file.verify()
        self._database.begin(connection)
        try:
            for statement, values in statements:
                connection.execute(statement, values)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    # These methods run on the event loop.

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        def fetch() -> list[Any]:
            assert self.connection is not None
            self._database.file.verify()
            return self.connection.execute(*_with_numbers(statement, values)).fetchall()

        return await self._run("read", fetch)

    async def _write(self, statement: str, *values: Any) -> None:
        await self._run("written", lambda: self._transact(_with_numbers(statement, values)))

    async def _delete(self, owners: list[tuple[str, str]]) -> None:
        if owners:
            await self._run("written", lambda: self._delete_all(owners))

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise StoreUnavailable(
                f"The artifact store {self._database.path} is not open: call open() first."
            )
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise self._database.explain(error, doing) from error


def _with_numbers(statement: str, values: Sequence[Any]) -> _Statement:
    """Return a statement with SQLite's numbered placeholders, and their values."""
    return statement.replace("$", "?"), {str(number): value for number, value in enumerate(values, 1)}
