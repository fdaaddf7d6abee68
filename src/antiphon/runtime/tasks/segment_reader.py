"""Reads the segments of a task from its log, starting after a given number.

Owns one reader's position in one log. A log may be long: it is read page by page, and the position of a
segment is found with a binary search.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from antiphon.store.contract import Entry, Store

__all__ = ["READ_PAGE_ENTRIES", "SegmentReader", "new_segments"]

READ_PAGE_ENTRIES = 16
"""How many entries are read at once. Each may hold a whole batch of segments."""
_MAX_SCAN_ENTRIES = 64
"""How many entries are scanned without a binary search."""


def new_segments(entries: Sequence[Entry], last: int) -> list[Any]:
    """Return the segments in entries of a log that come after the segment with the number `last`."""
    blocks: list[Any] = []
    for entry in entries:
        if entry.kind == "emitted":
            skipped = last + len(blocks) + 1 - entry.data["first"]
            blocks += entry.data["blocks"][max(skipped, 0) :]
    return blocks


class SegmentReader:
    """A reader of one task's log, positioned after the segment `last`."""

    def __init__(self, store: Store, id: str, after: int) -> None:
        self._store = store
        self._id = id
        self._position = 0
        self._is_positioned = after == 0
        self.last = after

    async def up_to(self, version: int) -> AsyncIterator[tuple[int, list[Any]]]:
        """Yield the segments in the entries up to a version, in batches with the number of the first."""
        if not self._is_positioned:
            self._is_positioned = True
            await self._seek(version)
        while self._position < version:
            entries = await self._store.read(self._id, after=self._position, limit=READ_PAGE_ENTRIES)
            if not entries:
                return
            self._position = entries[-1].number
            first, blocks = self.last + 1, new_segments(entries, self.last)
            if blocks:
                self.last += len(blocks)
                yield first, blocks
            if self._position < version:
                await asyncio.sleep(0)  # a long log must not hold the event loop

    async def _seek(self, version: int) -> None:
        """Move to the entry that holds the next segment, or to an entry shortly before it."""
        low, high = 0, version
        while high - low > _MAX_SCAN_ENTRIES:
            middle = (low + high) // 2
            found = await self._emitted_after(middle, high)
            if found is not None and found.data["first"] <= self.last + 1:
                low = found.number - 1
            else:
                high = middle
        self._position = low

    async def _emitted_after(self, position: int, end: int) -> Entry | None:
        while position < end:
            entries = await self._store.read(self._id, after=position, limit=READ_PAGE_ENTRIES)
            for entry in entries:
                if entry.kind == "emitted":
                    return entry
            if not entries:
                return None
            position = entries[-1].number
        return None
