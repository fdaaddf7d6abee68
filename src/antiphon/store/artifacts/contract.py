"""The contract of every store of artifacts, and what all of them do alike.

An artifact belongs to one principal, and to nobody else it exists: whoever asks says for whom. Its bytes
come in pieces and are read in ranges, so that nobody ever needs to have all of them in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

import msgspec

from antiphon.errors import TooLarge
from antiphon.model.artifact import ArtifactRecord

__all__ = ["CHUNK", "ArtifactPage", "ArtifactStore", "Held", "before", "cursor_of", "evicted", "in_chunks"]

CHUNK = 256 * 1024
"""The size of the pieces in which bytes are kept, the last of an artifact excepted."""


class ArtifactPage(msgspec.Struct, frozen=True):
    """Some artifacts, the newest first, and where to go on."""

    records: tuple[ArtifactRecord, ...]
    cursor: str | None = None


class ArtifactStore(Protocol):
    """Keeps artifacts. Any of these may raise `StoreUnavailable`."""

    async def open(self) -> None:
        """Be ready."""

    async def close(self) -> None:
        """Let go."""

    async def put(self, record: ArtifactRecord, pieces: AsyncIterator[bytes], *, most: int) -> ArtifactRecord:
        """Keep an artifact, durable when this returns; the record that is returned has its size.

        Raises `TooLarge` for one of more than `most` bytes, of which nothing is kept.
        """

    async def get(self, principal: str, id: str, *, now: int) -> ArtifactRecord | None:
        """What is known of an artifact; `None` if there is none of this principal's now."""

    async def read(self, record: ArtifactRecord, offset: int, length: int) -> bytes:
        """Some of its bytes; fewer than asked for at its end, none if it is gone."""

    async def list(self, principal: str, *, now: int, cursor: str | None, limit: int) -> ArtifactPage:
        """A principal's artifacts, newest first; raises `ValueError` for a cursor that is none."""

    async def sweep(self, *, now: int, most: int) -> None:
        """Forget what has expired; then of whoever has most the oldest, until all have `most` bytes."""


async def in_chunks(pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `CHUNK`; raises `TooLarge` for more than `most` of them."""
    buffer, size = bytearray(), 0
    async for piece in pieces:
        size += len(piece)
        if size > most:
            raise TooLarge(f"An artifact has {most} bytes at most.")
        buffer += piece
        while len(buffer) >= CHUNK:
            yield bytes(buffer[:CHUNK])
            del buffer[:CHUNK]
    if buffer:
        yield bytes(buffer)


def cursor_of(record: ArtifactRecord) -> str:
    """Where a list goes on after a record."""
    return f"{record.created}.{record.id}"


def before(cursor: str | None) -> tuple[int, str]:
    """The place in a list that a cursor names; raises `ValueError`."""
    if cursor is None:
        return 2**62, ""
    created, _, id = cursor.partition(".")
    if not (created.isascii() and created.isdigit() and len(created) < 19):
        raise ValueError(cursor)
    return int(created), id


class Held(msgspec.Struct, frozen=True):
    """One artifact, as far as deciding about its eviction goes."""

    principal: str
    id: str
    created: int
    size: int


def evicted(kept: Iterable[Held], most: int) -> list[Held]:
    """Which artifacts to forget, so that the others have `most` bytes at most together.

    Whoever has most loses its oldest, so that one who makes many does not cost the others theirs.
    """
    queues: dict[str, list[Held]] = {}
    sizes: dict[str, int] = {}
    for held in sorted(kept, key=lambda held: held.created, reverse=True):
        queues.setdefault(held.principal, []).append(held)
        sizes[held.principal] = sizes.get(held.principal, 0) + held.size
    found: list[Held] = []
    total = sum(sizes.values())
    while total > most:
        largest = max(sizes, key=lambda principal: sizes[principal])
        oldest = queues[largest].pop()
        sizes[largest] -= oldest.size
        total -= oldest.size
        if not queues[largest]:
            del sizes[largest]
        found.append(oldest)
    return found
