"""Artifacts in an SQLite file: that of the task store, or one of their own.

Owns two tables, which are made when the first artifact is kept; what else is in the file is the task
store's. One thread does all the work, and each piece is a transaction of its own, so that those who
write tasks into the same file never wait for long.
"""

from __future__ import annotations

import asyncio
import builtins
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts.contract import (
    CHUNK,
    ArtifactPage,
    Held,
    before,
    cursor_of,
    evicted,
    in_chunks,
)
from antiphon.store.sqlite.connection import Database
from antiphon.store.sqlite.migrations import prepare

__all__ = ["SQLiteArtifacts"]

T = TypeVar("T")

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
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArtifactRecord).decode


class SQLiteArtifacts:
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
        if self._thread is not None and self._connection is not None:
            await self._run("closed", self._connection.close)
            self._thread.shutdown()
        self._thread = self._connection = None

    async def put(self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, most: int) -> ArtifactRecord:
        """Keep an artifact."""
        owner, size = (record.principal, record.id), 0
        await self._run("written", lambda: self._delete([owner]))
        await self._write(
            "INSERT INTO artifact (principal, id, created, expires, record) VALUES (?, ?, ?, ?, ?)",
            (*owner, record.created, record.expires, _encode(record)),
        )
        try:
            number = 0
            async for chunk in in_chunks(pieces, most):
                await self._write("INSERT INTO artifact_chunk VALUES (?, ?, ?, ?)", (*owner, number, chunk))
                number += 1
                size += len(chunk)
            record = msgspec.structs.replace(record, size=size)
            await self._write(
                "UPDATE artifact SET size = ?, record = ? WHERE principal = ? AND id = ?",
                (size, _encode(record), *owner),
            )
        except BaseException:
            await asyncio.shield(self._run("written", lambda: self._delete([owner])))
            raise
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """What is known of an artifact."""
        rows = await self._rows(
            "SELECT record FROM artifact WHERE principal = ? AND id = ? AND expires > ? AND size IS NOT NULL",
            (principal, id, now),
        )
        return _decode(rows[0][0]) if rows else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Some of its bytes."""
        if length <= 0:
            return b""
        first, last = offset // CHUNK, (offset + length - 1) // CHUNK
        rows = await self._rows(
            "SELECT data FROM artifact_chunk "
            "WHERE principal = ? AND id = ? AND number BETWEEN ? AND ? ORDER BY number",
            (record.principal, record.id, first, last),
        )
        start = offset - first * CHUNK
        return b"".join(row[0] for row in rows)[start : start + length]

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """A principal's artifacts, newest first."""
        rows = await self._rows(
            "SELECT record FROM artifact WHERE principal = ? AND (created, id) < (?, ?) AND expires > ? "
            "AND size IS NOT NULL ORDER BY created DESC, id DESC LIMIT ?",
            (principal, *before(cursor), now, limit + 1),
        )
        page = tuple(_decode(row[0]) for row in rows[:limit])
        return ArtifactPage(page, cursor_of(page[-1]) if len(rows) > limit else None)

    async def sweep(self, *, now: int, most: int) -> None:
        """Forget what has expired, and what is too much."""
        gone = await self._rows("SELECT principal, id FROM artifact WHERE expires <= ? LIMIT 1000", (now,))
        total = await self._rows("SELECT coalesce(sum(size), 0) FROM artifact WHERE expires > ?", (now,))
        owners: builtins.list[tuple[str, str]] = [(row[0], row[1]) for row in gone]
        if total[0][0] > most:
            rows = await self._rows(
                "SELECT principal, id, created, size FROM artifact WHERE expires > ? AND size IS NOT NULL",
                (now,),
            )
            owners += [(held.principal, held.id) for held in evicted((Held(*row) for row in rows), most)]
        if owners:
            await self._run("written", lambda: self._delete(owners))

    # In the thread

    def _open(self) -> None:
        prepare(self._database)
        connection = self._database.connect("write")
        connection.execute("PRAGMA cache_size = -2048")  # bytes that pass through are not read again soon
        self._connection = connection
        for statement in _TABLES:
            self._database.patiently(partial(connection.execute, statement))

    def _delete(self, owners: builtins.list[tuple[str, str]]) -> None:
        for owner in owners:
            self._transact(
                ("DELETE FROM artifact WHERE principal = ? AND id = ?", owner),
                ("DELETE FROM artifact_chunk WHERE principal = ? AND id = ?", owner),
            )

    def _transact(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
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

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        await self._run("written", lambda: self._transact((statement, values)))

    async def _rows(self, statement: str, values: tuple[Any, ...]) -> builtins.list[tuple[Any, ...]]:
        def look() -> builtins.list[tuple[Any, ...]]:
            assert self._connection is not None
            return self._connection.execute(statement, values).fetchall()

        return await self._run("read", look)

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise StoreUnavailable(f"The artifacts in {self._database.path} are closed.")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise self._database.explain(error, doing) from error
