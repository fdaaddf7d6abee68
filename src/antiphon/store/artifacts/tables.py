"""Artifacts in the two tables of a database, whichever it is: what SQLite and PostgreSQL have in common.

Owns the statements, with PostgreSQL's placeholders. How one is carried out is for those who know a database.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from typing import Any

import msgspec

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

__all__ = ["Tables"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArtifactRecord).decode


class Tables:
    """A store of artifacts: `artifact` has a row for each, without a size while it is being written, and
    `artifact_chunk` its bytes in pieces."""

    async def put(self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, most: int) -> ArtifactRecord:
        """Keep an artifact."""
        owner, size, number = (record.principal, record.id), 0, 0
        await self._delete([owner])
        await self._write(
            "INSERT INTO artifact (principal, id, created, expires, record) VALUES ($1, $2, $3, $4, $5)",
            *owner,
            record.created,
            record.expires,
            _encode(record),
        )
        try:
            async for chunk in in_chunks(pieces, most):
                await self._write(
                    "INSERT INTO artifact_chunk VALUES ($1, $2, $3, $4)", *owner, number, bytes(chunk)
                )
                number += 1
                size += len(chunk)
            record = msgspec.structs.replace(record, size=size)
            await self._write(
                "UPDATE artifact SET size = $3, record = $4 WHERE principal = $1 AND id = $2",
                *owner,
                size,
                _encode(record),
            )
        except BaseException:
            await asyncio.shield(self._delete([owner]))
            raise
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """What is known of an artifact."""
        rows = await self._rows(
            "SELECT record FROM artifact "
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
        rows = await self._rows(
            "SELECT data FROM artifact_chunk "
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
        rows = await self._rows(
            "SELECT record FROM artifact WHERE principal = $1 AND (created, id) < ($2, $3) AND expires > $4 "
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
        gone = await self._rows("SELECT principal, id FROM artifact WHERE expires <= $1 LIMIT 1000", now)
        total = await self._rows(
            "SELECT CAST(coalesce(sum(size), 0) AS bigint) FROM artifact WHERE expires > $1", now
        )
        owners: builtins.list[tuple[str, str]] = [(row[0], row[1]) for row in gone]
        if total[0][0] > most:
            rows = await self._rows(
                "SELECT principal, id, created, size FROM artifact WHERE expires > $1 AND size IS NOT NULL",
                now,
            )
            owners += [(held.principal, held.id) for held in evicted((Held(*row) for row in rows), most)]
        await self._delete(owners)

    # What each database does in its own way

    async def _rows(self, statement: str, *values: Any) -> builtins.list[Any]:
        """What there is."""
        raise NotImplementedError

    async def _write(self, statement: str, *values: Any) -> None:
        """Do something that is durable when this returns."""
        raise NotImplementedError

    async def _delete(self, owners: builtins.list[tuple[str, str]]) -> None:
        """Forget artifacts, with their chunks, each in a transaction of its own."""
        raise NotImplementedError
