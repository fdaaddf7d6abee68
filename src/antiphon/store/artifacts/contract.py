"""The contract of every artifact store, and the functions that all of them share.

An artifact belongs to one principal, and no other principal can see it: every lookup names the principal. Its
bytes are written in pieces and read in ranges, so no process needs to hold all of them in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Protocol

import msgspec

from antiphon.errors import TooLarge
from antiphon.model.artifact import ArtifactRecord

__all__ = [
    "CHUNK_BYTES",
    "MANY",
    "ArtifactPage",
    "ArtifactStore",
    "StoredArtifact",
    "artifacts_to_evict",
    "decode_cursor",
    "in_chunks",
    "newest_page",
    "page_of",
]

CHUNK_BYTES = 256 * 1024
"""The size of the pieces in which bytes are stored, except for the last piece of an artifact. Small
enough that the transaction of a chunk is short, large enough that an artifact has few of them."""
MANY = 2**62
"""A number of artifacts that no store has."""
_AFTER_ALL_ARTIFACTS = 2**62
"""A creation time later than that of every artifact."""


class ArtifactPage(msgspec.Struct, frozen=True):
    """Some artifacts, newest first, and the cursor of the next page."""

    records: tuple[ArtifactRecord, ...]
    cursor: str | None = None


class ArtifactStore(Protocol):
    """A store of artifacts. Every method may raise `StoreUnavailable`."""

    async def open(self) -> None:
        """Open the store, and create its tables or its folder."""

    async def close(self) -> None:
        """Close the store. You may call this twice."""

    async def put(
        self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, max_bytes: int
    ) -> ArtifactRecord:
        """Store an artifact, and return its record with the size. It is durable when this returns.

        Raises `TooLarge` for more than `max_bytes` bytes, and then stores nothing.
        """

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """Return an artifact's record, or `None` if the principal has no such artifact or it has expired."""

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Return a range of an artifact's bytes; fewer at its end, none if it was deleted."""

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """Return a page of a principal's artifacts, newest first; raises `ValueError` for a bad cursor."""

    async def sweep(self, *, now: int, max_total_bytes: int, max_artifacts: int = MANY) -> None:
        """Delete expired artifacts, then evict others until the rest is within both limits."""


async def in_chunks(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the same bytes in chunks of `CHUNK_BYTES`; raises `TooLarge` for more than `max_bytes`."""
    buffer, size = bytearray(), 0
    async for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise TooLarge(f"The artifact is too large: it may have up to {max_bytes} bytes.")
        buffer += piece
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
    if buffer:
        yield bytes(buffer)


def decode_cursor(cursor: str | None) -> tuple[int, str]:
    """Return the creation time and id in a cursor; raises `ValueError` for an invalid cursor.

    Without a cursor, the result is larger than every artifact, so that the first page follows.
    """
    if cursor is None:
        return _AFTER_ALL_ARTIFACTS, ""
    created, _, id = cursor.partition(".")
    if not (created.isascii() and created.isdigit() and len(created) < 19):
        raise ValueError(f"Invalid cursor {cursor!r}: start again without a cursor.")
    return int(created), id


def page_of(records: Sequence[ArtifactRecord], limit: int) -> ArtifactPage:
    """Return a page of the first `limit` records, with a cursor if there are more records."""
    page = tuple(records[:limit])
    cursor = f"{page[-1].created}.{page[-1].id}" if len(records) > limit else None
    return ArtifactPage(page, cursor)


def newest_page(
    records: Iterable[ArtifactRecord], *, now: int, position: tuple[int, str], limit: int
) -> ArtifactPage:
    """Return the page of unexpired records below a position, newest first."""
    found = [record for record in records if record.expires > now and (record.created, record.id) < position]
    found.sort(key=lambda record: (record.created, record.id), reverse=True)
    return page_of(found, limit)


class StoredArtifact(msgspec.Struct, frozen=True):
    """The properties of an artifact that decide about its eviction."""

    principal: str
    id: str
    created: int
    size: int
    sharer: str = ""
    """As in the record."""


def artifacts_to_evict(
    stored: Iterable[StoredArtifact], max_total_bytes: int, max_artifacts: int = MANY
) -> list[StoredArtifact]:
    """Choose the artifacts to evict, so that the others are not too many, nor too large together.

    The principal with the most bytes, or the sharer of artifacts without one, loses its oldest first; if
    there are too many artifacts, the one with the most of them. So the many artifacts of one never evict
    those of another that has less.
    """
    queues: dict[str, list[StoredArtifact]] = {}
    for artifact in sorted(stored, key=lambda artifact: artifact.created, reverse=True):
        queues.setdefault(artifact.sharer or artifact.principal, []).append(artifact)
    too_many = _evict_from(queues, max_artifacts, lambda artifact: 1)
    return too_many + _evict_from(queues, max_total_bytes, lambda artifact: artifact.size)


def _evict_from(
    queues: dict[str, list[StoredArtifact]], most: int, size_of: Callable[[StoredArtifact], int]
) -> list[StoredArtifact]:
    """Take artifacts from the ends of the largest queues, until all queues together have `most` at most."""
    sizes = {sharer: sum(map(size_of, queue)) for sharer, queue in queues.items()}
    total, largest_first = sum(sizes.values()), [(-size, sharer) for sharer, size in sizes.items()]
    heapify(largest_first)
    evicted: list[StoredArtifact] = []
    while total > most:
        size, sharer = largest_first[0]
        evicted.append(queues[sharer].pop())
        freed = size_of(evicted[-1])
        total -= freed
        if queues[sharer]:
            heapreplace(largest_first, (size + freed, sharer))
        else:
            heappop(largest_first)
            del queues[sharer]
    return evicted
