"""Artifacts in the memory of one process, lost when it ends. Knows no other process."""

from __future__ import annotations

from collections.abc import AsyncIterator

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
    newest_page,
)

__all__ = ["MemoryArtifacts"]


class MemoryArtifacts:
    """An artifact store for tests, and for servers whose artifacts may end with the process."""

    def __init__(self) -> None:
        self._artifacts: dict[tuple[str, str], tuple[ArtifactRecord, list[bytes]]] = {}

    async def open(self) -> None:
        """Do nothing: memory needs no opening."""

    async def close(self) -> None:
        """Delete all artifacts."""
        self._artifacts.clear()

    async def put(
        self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, max_bytes: int
    ) -> ArtifactRecord:
        """Store an artifact."""
        chunks = [chunk async for chunk in in_chunks(pieces, max_bytes)]
        record = msgspec.structs.replace(record, size=sum(map(len, chunks)))
        self._artifacts[record.principal, record.id] = (record, chunks)
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """Return an artifact's record."""
        found = self._artifacts.get((principal, id))
        return found[0] if found is not None and found[0].expires > now else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Return a range of an artifact's bytes."""
        found = self._artifacts.get((record.principal, record.id))
        if found is None or length <= 0:
            return b""
        first, last = offset // CHUNK_BYTES, (offset + length - 1) // CHUNK_BYTES
        start = offset - first * CHUNK_BYTES
        return b"".join(found[1][first : last + 1])[start : start + length]

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """Return a page of a principal's artifacts, newest first."""
        owned = (record for (owner, _), (record, _) in self._artifacts.items() if owner == principal)
        return newest_page(owned, now=now, position=decode_cursor(cursor), limit=limit)

    async def sweep(self, *, now: int, max_total_bytes: int, max_artifacts: int = MANY) -> None:
        """Delete expired artifacts, and evict others beyond the limits."""
        for key, (record, _) in tuple(self._artifacts.items()):
            if record.expires <= now:
                del self._artifacts[key]
        stored = (
            StoredArtifact(owner, id, record.created, record.size, record.sharer)
            for (owner, id), (record, _) in self._artifacts.items()
        )
        for evicted in artifacts_to_evict(stored, max_total_bytes, max_artifacts):
            del self._artifacts[evicted.principal, evicted.id]
