"""Artifacts in an SQLite file: that of the task store, or one of their own.

Owns two tables, which are made when the first artifact is kept; what else is in the file is the task
store's. One thread does all the work, and each piece is a transaction of its own, so that those who
write tasks into the same file never wait for long.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

from antiphon.errors import StoreUnavailable
from antiphon.store.artifacts.tables import Tables
from antiphon.store.sqlite.connection import Database
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


class SQLiteArtifacts(Tables):
    """A store of artifacts that processes on one machine share."""

    def __init__(self, path: str, *, busy: float = 5.0) -> None:
        self._database = Database(path, busy=busy)
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file, and make it if it is not there."""
        self._database.check()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="antiphon-artifacts")
        await self._run("opened", self._open)

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            await self._run("closed", self._connection.close)
        if self._thread is not None:
            self._thread.shutdown()
        self._thread = self._connection = None

    # In the thread

    def _open(self) -> None:
        prepare(self._database)
        connection = self._database.connect("write")
        connection.execute("PRAGMA cache_size = -2048")  # bytes that pass through are not read again soon
        self._connection = connection
        for statement in _TABLES:
            self._database.patiently(partial(connection.execute, statement))

    def _delete_all(self, owners: list[tuple[str, str]]) -> None:
        for owner in owners:
            self._transact(
                _own("DELETE FROM artifact WHERE principal = $1 AND id = $2", owner),
                _own("DELETE FROM artifact_chunk WHERE principal = $1 AND id = $2", owner),
            )

    def _transact(self, *statements: _Statement) -> None:
        connection = self._connection
        assert connection is not None
        self._database.begin(connection)
        try:
            for statement, values in statements:
                connection.execute(statement, values)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    # From the event loop

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        def look() -> list[Any]:
            assert self._connection is not None
            return self._connection.execute(*_own(statement, values)).fetchall()

        return await self._run("read", look)

    async def _write(self, statement: str, *values: Any) -> None:
        await self._run("written", lambda: self._transact(_own(statement, values)))

    async def _delete(self, owners: list[tuple[str, str]]) -> None:
        if owners:
            await self._run("written", lambda: self._delete_all(owners))

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise StoreUnavailable(f"The artifacts in {self._database.path} are closed.")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise self._database.explain(error, doing) from error


def _own(statement: str, values: Sequence[Any]) -> _Statement:
    """A statement with SQLite's placeholders, and what goes there."""
    return statement.replace("$", "?"), {str(number): value for number, value in enumerate(values, 1)}
