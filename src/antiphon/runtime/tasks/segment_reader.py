"""Reading the segments of a task from its log, from a number on.

Owns one reader's place in one log. A log may be long, so it is read a little at a time, and the place of a
number is searched for, not walked to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from antiphon.store.contract import Entry, Store

__all__ = ["SegmentReader"]

_PAGE = 16
"""How many entries are read at once; each may hold a whole batch of segments."""
_WALK = 64
"""How many entries are read through without searching."""


class SegmentReader:
    """A place in the log of one task: after the segment `last`."""

    def __init__(self, store: Store, id: str, after: int) -> None:
        self._store = store
        self._id = id
        self._place = 0
        self._sought = after == 0
        self.last = after

    async def up_to(self, version: int) -> AsyncIterator[tuple[int, list[Any]]]:
        """The segments in the entries up to a version, some at a time, each time with their first number."""
        if not self._sought:
            self._sought = True
            await self._seek(version)
        while self._place < version:
            entries = await self._store.read(self._id, after=self._place, limit=_PAGE)
            if not entries:
                return
            self._place = entries[-1].number
            first, blocks = self.last + 1, self._new(entries)
            if blocks:
                self.last += len(blocks)
                yield first, blocks

    def _new(self, entries: Any) -> list[Any]:
        blocks: list[Any] = []
        for entry in entries:
            if entry.kind == "emitted":
                had = self.last + len(blocks) + 1 - entry.data["first"]
                blocks += entry.data["blocks"][max(had, 0) :]
        return blocks

    async def _seek(self, version: int) -> None:
        """Go to the entry that holds the next segment, or to some entry not far before it."""
        low, high = 0, version
        while high - low > _WALK:
            middle = (low + high) // 2
            found = await self._emitted_after(middle, high)
            if found is not None and found.data["first"] <= self.last + 1:
                low = found.number - 1
            else:
                high = middle
        self._place = low

    async def _emitted_after(self, place: int, end: int) -> Entry | None:
        while place < end:
            entries = await self._store.read(self._id, after=place, limit=_PAGE)
            for entry in entries:
                if entry.kind == "emitted":
                    return entry
            if not entries:
                return None
            place = entries[-1].number
        return None
