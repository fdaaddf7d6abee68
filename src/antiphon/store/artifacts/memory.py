"""Artifacts in the memory of one process, gone with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

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

__all__ = ["MemoryArtifacts"]


class MemoryArtifacts:
    """A store of artifacts for tests, and for servers whose artifacts need not outlive them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[ArtifactRecord, list[bytes]]] = {}

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """Forget everything."""
        self._kept.clear()

    async def put(self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, most: int) -> ArtifactRecord:
        """Keep an artifact."""
        chunks = [chunk async for chunk in in_chunks(pieces, most)]
        record = msgspec.structs.replace(record, size=sum(map(len, chunks)))
        self._kept[record.principal, record.id] = (record, chunks)
        return record

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """What is known of an artifact."""
        found = self._kept.get((principal, id))
        return found[0] if found is not None and found[0].expires > now else None

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Some of its bytes."""
        found = self._kept.get((record.principal, record.id))
        if found is None or length <= 0:
            return b""
        first, last = offset // CHUNK, (offset + length - 1) // CHUNK
        start = offset - first * CHUNK
        return b"".join(found[1][first : last + 1])[start : start + length]

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """A principal's artifacts, newest first."""
        place = before(cursor)
        mine = [
            record
            for (owner, _), (record, _) in self._kept.items()
            if owner == principal and record.expires > now and (record.created, record.id) < place
        ]
        mine.sort(key=lambda record: (record.created, record.id), reverse=True)
        page = tuple(mine[:limit])
        return ArtifactPage(page, cursor_of(page[-1]) if len(mine) > limit else None)

    async def sweep(self, *, now: int, most: int) -> None:
        """Forget what has expired, and what is too much."""
        for key, (record, _) in tuple(self._kept.items()):
            if record.expires <= now:
                del self._kept[key]
        held = (
            Held(owner, id, record.created, record.size) for (owner, id), (record, _) in self._kept.items()
        )
        for gone in evicted(held, most):
            del self._kept[gone.principal, gone.id]
