"""Artifacts in a PostgreSQL database: that of the task store, for instances on many machines.

Owns two tables in the schema of the tasks, made when the store is opened. Each piece is a statement of its
own, so that an artifact of any size holds no lock and needs little memory.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
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
from antiphon.store.postgres.link import Database, Link
from antiphon.store.postgres.migrations import prepare

__all__ = ["PostgresArtifacts"]

# Two instances that make a table in the same moment would be in each other's way, hence the lock.
_TABLES = """
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock(1097757811);
    CREATE TABLE IF NOT EXISTS artifacts (
        principal text NOT NULL,
        id text NOT NULL,
        created bigint NOT NULL,
        expires bigint NOT NULL,
        size bigint,  -- none while it is being written
        record bytea NOT NULL,
        PRIMARY KEY (principal, id)
    );
    CREATE INDEX IF NOT EXISTS artifacts_of ON artifacts (principal, created, id);
    CREATE INDEX IF NOT EXISTS artifacts_expires ON artifacts (expires);
    CREATE TABLE IF NOT EXISTS artifact_chunks (
        principal text NOT NULL,
        id text NOT NULL,
        number integer NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (principal, id, number),
        FOREIGN KEY (principal, id) REFERENCES artifacts ON DELETE CASCADE
    );
END $$
"""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArtifactRecord).decode


class PostgresArtifacts:
    """A store of artifacts that instances on many machines share."""

    def __init__(self, url: str, *, patience: float = 5.0) -> None:
        self._database = Database.of(url, patience)
        self._link: Link | None = None

    async def open(self) -> None:
        """Connect, and make the tables if they are not there."""
        await prepare(self._database)
        self._link = Link(self._database)
        await self._rows(_TABLES, doing="opened")

    async def close(self) -> None:
        """Let go of the connection."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def put(self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, most: int) -> ArtifactRecord:
        """Keep an artifact."""
        owner, size, number = (record.principal, record.id), 0, 0
        await self._delete([owner])
        await self._rows(
            "INSERT INTO artifacts (principal, id, created, expires, record) VALUES ($1, $2, $3, $4, $5)",
            *owner,
            record.created,
            record.expires,
            _encode(record),
            doing="written",
        )
        try:
            async for chunk in in_chunks(pieces, most):
                await self._rows(
                    "INSERT INTO artifact_chunks VALUES ($1, $2, $3, $4)",
                    *owner,
                    number,
                    bytes(chunk),
                    doing="written",
                )
                number += 1
                size += len(chunk)
            record = msgspec.structs.replace(record, size=size)
            await self._rows(
                "UPDATE artifacts SET size = $3, record = $4 WHERE principal = $1 AND id = $2",
                *owner,
                size,
                _encode(record),
                doing="written",
            )
        except BaseException:
            await asyncio.shield(self._delete([owner]))
            raise
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """What is known of an artifact."""
        rows = await self._read(
            "SELECT record FROM artifacts "
            "WHERE principal = $1 AND id = $2 AND expires > $3 AND size IS NOT NULL",
            principal,
            id,
            now,
        )
        return _decode(rows[0][0]) if rows else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Some of its bytes."""
        if length <= 0:
            return b""
        first, last = offset // CHUNK, (offset + length - 1) // CHUNK
        rows = await self._read(
            "SELECT data FROM artifact_chunks "
            "WHERE principal = $1 AND id = $2 AND number BETWEEN $3 AND $4 ORDER BY number",
            record.principal,
            record.id,
            first,
            last,
        )
        start = offset - first * CHUNK
        return b"".join(row[0] for row in rows)[start : start + length]

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """A principal's artifacts, newest first."""
        rows = await self._read(
            "SELECT record FROM artifacts WHERE principal = $1 AND (created, id) < ($2, $3) AND expires > $4 "
            "AND size IS NOT NULL ORDER BY created DESC, id DESC LIMIT $5",
            principal,
            *before(cursor),
            now,
            limit + 1,
        )
        page = tuple(_decode(row[0]) for row in rows[:limit])
        return ArtifactPage(page, cursor_of(page[-1]) if len(rows) > limit else None)

    async def sweep(self, *, now: int, most: int) -> None:
        """Forget what has expired, and what is too much."""
        gone = await self._read("SELECT principal, id FROM artifacts WHERE expires <= $1 LIMIT 1000", now)
        total = await self._read(
            "SELECT coalesce(sum(size), 0)::bigint FROM artifacts WHERE expires > $1", now
        )
        owners: builtins.list[tuple[str, str]] = [(row[0], row[1]) for row in gone]
        if total[0][0] > most:
            rows = await self._read(
                "SELECT principal, id, created, size FROM artifacts WHERE expires > $1 AND size IS NOT NULL",
                now,
            )
            owners += [(held.principal, held.id) for held in evicted((Held(*row) for row in rows), most)]
        await self._delete(owners)

    async def _delete(self, owners: builtins.list[tuple[str, str]]) -> None:
        for owner in owners:
            await self._rows(
                "DELETE FROM artifacts WHERE principal = $1 AND id = $2", *owner, doing="written", again=True
            )

    async def _read(self, statement: str, *values: Any) -> builtins.list[Any]:
        return await self._rows(statement, *values, doing="read", again=True)

    async def _rows(
        self, statement: str, *values: Any, doing: str, again: bool = False
    ) -> builtins.list[Any]:
        if self._link is None:
            raise StoreUnavailable(f"The artifacts in {self._database.place} are closed.")
        try:
            return await self._link.fetch(statement, *values, again=again)
        except asyncpg.PostgresError as error:
            raise self._database.explain(error, doing) from error
