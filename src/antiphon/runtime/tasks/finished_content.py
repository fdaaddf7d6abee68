"""Assembles the content of finished tasks from the segments in their logs, and caches the content.

Owns the bounds of the cache. A log may be long, so it is read in pages, and the event loop runs between two
pages. Only the entries that hold segments are read, if the last entry of the log names them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from antiphon.model.task import SEGMENT_ENTRIES, Task
from antiphon.runtime.tasks.segment_reader import READ_PAGE_ENTRIES, SegmentReader, new_segments
from antiphon.store.contract import Store

__all__ = ["FinishedContent"]

MAX_BYTES = 32 * 1024 * 1024
"""How many bytes the cache holds."""
MAX_TASK_BYTES = MAX_BYTES // 2
"""The size of the largest content that is cached."""
_LAST_VERSION = 2**62
"""A version above that of every log, to read a log to its end."""

_encode = msgspec.json.Encoder().encode


class FinishedContent:
    """The content of finished tasks as JSON, by id and end: a task that is retried ends again."""

    __slots__ = ("_store", "bytes", "contents")

    def __init__(self, store: Store) -> None:
        self._store = store
        self.contents: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        """What is kept; what was asked for last is last."""
        self.bytes = 0
        """How large that is."""

    async def of(self, task: Task) -> msgspec.Raw:
        """Return the segments of a task and the content of its result after them, as one JSON array."""
        key = task.id, task.updated
        found = self.contents.get(key)
        if found is not None:
            self.contents.move_to_end(key)
            return msgspec.Raw(found)
        assert task.result is not None
        parts: list[bytes] = []
        count = 0
        async for blocks in self._segments(task.id):
            count += len(blocks)
            parts.append(_encode(blocks)[1:-1])
            await asyncio.sleep(0)
        if task.result["content"]:
            parts.append(_encode(task.result["content"])[1:-1])
        content = b"[" + b",".join(parts) + b"]"
        if count == task.segments:  # the store may have deleted the task meanwhile
            self.keep(key, content)
        return msgspec.Raw(content)

    async def _segments(self, id: str) -> AsyncIterator[list[Any]]:
        """Yield the segments of a task in order, in batches."""
        ranges = await self._segment_entries(id)
        if ranges is None:
            # An earlier version finished the task: read the whole log.
            async for _, blocks in SegmentReader(self._store, id, 0).up_to(_LAST_VERSION):
                yield blocks
            return
        last = 0
        for pages in _batches(ranges):
            # Together, so that the store can read them in one operation.
            reads = (self._store.read(id, after=after, limit=limit) for after, limit in pages)
            blocks = new_segments([entry for page in await asyncio.gather(*reads) for entry in page], last)
            if blocks:
                last += len(blocks)
                yield blocks

    async def _segment_entries(self, id: str) -> Sequence[Sequence[int]] | None:
        """Return the ranges of entries that hold segments; `None` if the last entry does not name them."""
        record = await self._store.get(id)
        last = () if record is None else await self._store.read(id, after=record.version - 1, limit=1)
        return last[0].data.get(SEGMENT_ENTRIES) if last else None

    def keep(self, key: tuple[str, int], content: bytes) -> None:
        """Keep the content of a task, unless it is too large, and forget the oldest if there is no room."""
        if len(content) > MAX_TASK_BYTES or key in self.contents:
            return
        self.contents[key] = content
        self.bytes += len(content)
        while self.bytes > MAX_BYTES:
            _, evicted = self.contents.popitem(last=False)
            self.bytes -= len(evicted)


def _batches(ranges: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield what to read together: pages, each the number of the entry before it and its length.

    The pages of a batch have at most `READ_PAGE_ENTRIES` entries, because each entry may be large.
    """
    batch: list[tuple[int, int]] = []
    room = READ_PAGE_ENTRIES
    for first, end in ranges:
        position = first
        while position <= end:
            length = min(room, end - position + 1)
            batch.append((position - 1, length))
            position, room = position + length, room - length
            if room == 0:
                yield batch
                batch, room = [], READ_PAGE_ENTRIES
    if batch:
        yield batch
