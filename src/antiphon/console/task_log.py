"""Reads parts of a task's log for the page, bounded in entries and in bytes.

The entries of a log are numbered from 1 to the version of its record, so that a page of it can be read from
either end. An entry may be large: its line shows its beginning, and the page fetches the entry on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.console.timeline import Timeline, timeline_of
from antiphon.store.contract import Entry, Record, Store

__all__ = ["PAGE_ENTRIES", "log_page", "read_timeline", "whole_entry"]

PAGE_ENTRIES = 200
"""How many entries a page of the log has."""
LINE_CHARACTERS = 200
"""How much of an entry its line shows."""
_LARGE_BYTES = 2048
"""From which size on the line of an entry says how large it is."""
MAX_READ_BYTES = 4 * 1024 * 1024
"""After how many bytes of entries a reader stops, although it may read more entries."""
_TIMELINE_FIRST, _TIMELINE_LAST = 200, 800
"""How many entries of a long log the timeline is computed from, at the beginning and at the end."""
_READ_ENTRIES = 25
"""How many entries are read at once. Each may hold a whole batch of segments."""

_encode = msgspec.json.Encoder().encode


async def log_page(
    store: Store, record: Record, *, after: int | None = None, before: int | None = None
) -> dict[str, Any]:
    """Return a page of the log: the entries above `after`, those below `before`, or else the last ones.

    The page has fewer entries than `PAGE_ENTRIES` if they are large.
    """
    total = record.version
    if after is not None:
        entries = await _read_forward(store, record.id, after, min(after + PAGE_ENTRIES, total))
    else:
        end = total if before is None else min(before - 1, total)
        entries = await _read_backward(store, record.id, max(end - PAGE_ENTRIES, 0), end)
    return {"entries": [_line_json(entry) for entry in entries], "total": total}


async def whole_entry(store: Store, record: Record, number: int) -> dict[str, Any] | None:
    """Return one entry with all its data; `None` if the log has no entry of this number."""
    found = await store.read(record.id, after=number - 1, limit=1) if number > 0 else ()
    return {"data": found[0].data} if found and found[0].number == number else None


async def read_timeline(store: Store, record: Record, *, ended: int | None) -> Timeline:
    """Return the timeline of a task. Of a long log, it reads the beginning and the end only."""
    total = record.version
    first = await _read_forward(store, record.id, 0, min(_TIMELINE_FIRST, total))
    after = max(len(first), total - _TIMELINE_LAST)
    last = await _read_backward(store, record.id, after, total)
    whole = len(first) + len(last) >= total
    parts: Sequence[Sequence[Entry]] = ([*first, *last],) if whole else (first, last)
    return timeline_of(parts, created=record.created, ended=ended, total=total)


async def _read_forward(store: Store, id: str, after: int, end: int) -> list[Entry]:
    """Return the entries from `after` to `end`, or fewer at the beginning if they are large."""
    found: list[Entry] = []
    size = 0
    while after < end and size < MAX_READ_BYTES:
        entries = await store.read(id, after=after, limit=min(_READ_ENTRIES, end - after))
        if not entries:
            break
        found += entries
        size += _size(entries)
        after = entries[-1].number
    return found


async def _read_backward(store: Store, id: str, after: int, end: int) -> list[Entry]:
    """Return the entries from `after` to `end`, or fewer at the end if they are large."""
    found: list[Entry] = []
    size = 0
    while after < end and size < MAX_READ_BYTES:
        start = max(end - _READ_ENTRIES, after)
        entries = await store.read(id, after=start, limit=end - start)
        found[:0] = entries
        size += _size(entries)
        end = start
    return found


def _size(entries: Sequence[Entry]) -> int:
    return len(_encode(entries))


def _line_json(entry: Entry) -> dict[str, Any]:
    """Return the line of an entry: the beginning of its data as JSON, and its size if it is large."""
    data = _encode(entry.data)
    text = data[: 4 * LINE_CHARACTERS].decode(errors="ignore")[:LINE_CHARACTERS]
    size = f"{len(data) / 1000:,.1f} kB" if len(data) > _LARGE_BYTES else ""
    return {"number": entry.number, "kind": entry.kind, "at": entry.at, "text": text, "size": size}
