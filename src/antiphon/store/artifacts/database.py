"""Artifacts in two tables of a database: the part that SQLite and PostgreSQL share.

Owns the statements, with PostgreSQL's placeholders. The subclasses execute them; this module knows no
connection.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts.contract import (
    CHUNK_BYTES,
    MANY,
    ArtifactPage,
    StoredArtifact,
    artifacts_to_evict,
    decode_cursor,
    in_chunks,
)
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["DatabaseArtifacts"]

_MAX_EXPIRED_ARTIFACTS = 1000
"""Expired artifacts that one sweep deletes, so that a sweep ends soon; the next one deletes more."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArtifactRecord).decode


class _Share(msgspec.Struct):
    """What a sweep reads of a record."""

    sharer: str = ""


_decode_share = msgspec.json.Decoder(_Share).decode


class DatabaseArtifacts:
    """An artifact store in a database.

    `artifact` has a row for each artifact, whose size is NULL while it is being written. `artifact_chunk` has
    its bytes in chunks.
    """

    async def put(
        self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, max_bytes: int
    ) -> ArtifactRecord:
        """Store an artifact."""
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
            async for chunk in in_chunks(pieces, max_bytes):
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
        """Return an artifact's record."""
        rows = await self._rows(
            "SELECT record FROM artifact "
            "WHERE principal = $1 AND id = $2 AND expires > $3 AND size IS NOT NULL",
            principal,
            id,
            now,
        )
        return self._readable(id, rows[0][0]) if rows else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Return a range of an artifact's bytes."""
        if length <= 0:
            return b""
        first, last = offset // CHUNK_BYTES, (offset + length - 1) // CHUNK_BYTES
        rows = await self._rows(
            "SELECT data FROM artifact_chunk "
            "WHERE principal = $1 AND id = $2 AND number BETWEEN $3 AND $4 ORDER BY number",
            record.principal,
            record.id,
            first,
            last,
        )
        start = offset - first * CHUNK_BYTES
        return b"".join(row[0] for row in rows)[start : start + length]

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """Return a page of a principal's artifacts, newest first."""
        rows = await self._rows(
            "SELECT record, created, id FROM artifact WHERE principal = $1 AND (created, id) < ($2, $3) "
            "AND expires > $4 AND size IS NOT NULL ORDER BY created DESC, id DESC LIMIT $5",
            principal,
            *decode_cursor(cursor),
            now,
            limit + 1,
        )
        found = (self._readable(row[2], row[0]) for row in rows[:limit])
        cursor = f"{rows[limit - 1][1]}.{rows[limit - 1][2]}" if len(rows) > limit else None
        return ArtifactPage(tuple(record for record in found if record is not None), cursor)

    async def sweep(self, *, now: int, max_total_bytes: int, max_artifacts: int = MANY) -> None:
        """Delete expired artifacts, and evict others beyond the limits."""
        expired = await self._rows(
            "SELECT principal, id FROM artifact WHERE expires <= $1 LIMIT $2", now, _MAX_EXPIRED_ARTIFACTS
        )
        total = await self._rows(
            "SELECT CAST(coalesce(sum(size), 0) AS bigint), count(size) FROM artifact WHERE expires > $1", now
        )
        owners: builtins.list[tuple[str, str]] = [(row[0], row[1]) for row in expired]
        if total[0][0] > max_total_bytes or total[0][1] > max_artifacts:
            rows = await self._rows(
                "SELECT principal, id, created, size, record FROM artifact "
                "WHERE expires > $1 AND size IS NOT NULL",
                now,
            )
            stored = (
                StoredArtifact(principal, id, created, size, _sharer_in(record))
                for principal, id, created, size, record in rows
            )
            owners += [
                (evicted.principal, evicted.id)
                for evicted in artifacts_to_evict(stored, max_total_bytes, max_artifacts)
            ]
        await self._delete(owners)

    @functools.cached_property
    def _unreadable(self) -> UnreadableRecords:
        return UnreadableRecords(type(self).__name__, kind="artifact")

    def _readable(self, id: str, record: bytes) -> ArtifactRecord | None:
        """Return a record; log and return `None` if it is damaged."""
        try:
            return _decode(record)
        except msgspec.MsgspecError as error:
            self._unreadable.log(id, error)
            return None

    # The subclasses implement these methods.

    async def _rows(self, statement: str, *values: Any) -> builtins.list[Any]:
        """Return the rows of a query."""
        raise NotImplementedError

    async def _write(self, statement: str, *values: Any) -> None:
        """Execute a statement; its changes are durable when this returns."""
        raise NotImplementedError

    async def _delete(self, owners: builtins.list[tuple[str, str]]) -> None:
        """Delete artifacts with their chunks, each in its own transaction."""
        raise NotImplementedError


def _sharer_in(record: bytes) -> str:
    """Return the sharer in a record; a damaged record counts for its principal."""
    try:
        return _decode_share(record).sharer
    except msgspec.MsgspecError:
        return ""
