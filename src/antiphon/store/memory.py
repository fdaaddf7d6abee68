"""A store in the memory of one process: for tests, and for servers whose tasks may end with them.

It keeps the contract of `log.py` word for word, but for durability. It owns its rows, and goes through
JSON as every store does, so that nobody can change what was written. It must not know what entries mean.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from antiphon.errors import Stale, StoreUnavailable
from antiphon.store import rules
from antiphon.store.contract import Claim, Entry, Page, Phase, Record, Watch
from antiphon.store.rules import Row
from antiphon.store.watchers import Watchers

__all__ = ["MemoryStore"]


class _Kept(msgspec.Struct):
    """A task: its row, and its entries as kind, time and JSON text."""

    row: Row
    log: list[tuple[str, int, str]]


class _Queue:
    """The tasks of one tool that may be free, oldest first. Those that no longer are go when they are met."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._members: set[int] = set()

    def put(self, row: Row) -> None:
        if row.key not in self._members:
            self._members.add(row.key)
            heappush(self._heap, (row.created, row.key))

    def first(self, kept: dict[int, _Kept]) -> tuple[int, int] | None:
        while self._heap:
            task = kept.get(self._heap[0][1])
            if task is not None and rules.free(task.row):
                return self._heap[0]
            self.pop()
        return None

    def pop(self) -> None:
        self._members.discard(heappop(self._heap)[1])


class _Order:
    """Tasks by age. What goes is only marked, and swept once it is half of all."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._gone: set[int] = set()

    def add(self, row: Row) -> None:
        insort(self._keys, (row.created, row.key))

    def remove(self, row: Row) -> bool:
        """Take one out; true if none is left."""
        self._gone.add(row.key)
        if len(self._gone) * 2 > len(self._keys):
            self._keys = [pair for pair in self._keys if pair[1] not in self._gone]
            self._gone.clear()
        return not self._keys

    def before(self, place: tuple[int, int], wanted: Callable[[int], bool], limit: int) -> list[int]:
        found: list[int] = []
        at = bisect_left(self._keys, place)
        while at and len(found) < limit:
            at -= 1
            key = self._keys[at][1]
            if key not in self._gone and wanted(key):
                found.append(key)
        return found


class MemoryStore:
    """Tasks in the memory of this process; gone when it ends."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._hub = Watchers()
        self._is_open = False
        self._last = 0
        self._ids: dict[str, _Kept] = {}
        self._kept: dict[int, _Kept] = {}
        self._queues: dict[str, _Queue] = {}
        self._leases: list[tuple[int, int]] = []
        self._expiring: list[tuple[int, int]] = []
        self._of_all = _Order()
        self._of: dict[str, _Order] = {}
        self._counts: dict[Phase, int] = {"ready": 0, "waiting": 0, "ended": 0}
        self._noted: set[str] = set()
        self._noted_until: list[tuple[int, str]] = []

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._hub.end()

    async def create(
        self,
        record: Record,
        entries: Sequence[tuple[str, Any]],
        *,
        worker: str | None = None,
        lease: float = 0.0,
    ) -> Claim | None:
        now, length, pairs = self._now(), rules.span(lease), rules.to_pairs(entries)
        row = rules.begin(record, len(pairs), key=self._last + 1, held=worker is not None)
        if row.id in self._ids:
            raise Stale(f"There is a task {row.id!r} already: take another id.")
        self._last = row.key
        if worker is not None:
            rules.hold(row, worker, now + length)
            heappush(self._leases, (row.lease, row.key))
        kept = _Kept(row, [(kind, now, data) for kind, data in pairs])
        self._ids[row.id] = self._kept[row.key] = kept
        self._of_all.add(row)
        self._of.setdefault(row.principal, _Order()).add(row)
        if row.expires is not None:
            heappush(self._expiring, (row.expires, row.key))
        self._counts[row.phase] += 1
        self._changed(row)
        return None if worker is None else Claim(rules.record_of(row), row.token)

    async def append(
        self,
        id: str,
        entries: Sequence[tuple[str, Any]],
        *,
        expect: int,
        phase: Phase,
        head: Any,
        token: int | None = None,
    ) -> int:
        now, pairs, text = self._now(), rules.to_pairs(entries), rules.encode(head)
        rules.known_phase(phase)
        kept = self._ids.get(id)
        row = rules.check(kept.row if kept else None, id, expect=expect, token=token, now=now)
        self._counts[row.phase] -= 1
        self._counts[phase] += 1
        self._kept[row.key].log.extend((kind, now, data) for kind, data in pairs)
        rules.advance(row, len(pairs), phase=phase, now=now)
        row.head = text
        self._changed(row)
        return row.version

    async def get(self, id: str) -> Record | None:
        kept = self._alive(id)
        return rules.record_of(kept.row) if kept else None

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        kept, start = self._alive(id), max(after, 0)
        if kept is None:
            return []
        return [
            Entry(start + nr, kind, at, msgspec.json.decode(data))
            for nr, (kind, at, data) in enumerate(kept.log[start : start + max(limit, 0)], 1)
        ]

    async def list(self, principal: str | None, *, cursor: str | None = None, limit: int = 100) -> Page:
        now, place = self._now(), rules.open_cursor(cursor)
        rules.some(limit)
        order = self._of_all if principal is None else self._of.get(principal)
        if order is None:
            return Page((), None)
        found = order.before(place, lambda key: rules.alive(self._kept[key].row, now), limit + 1)
        rows = [self._kept[key].row for key in found[:limit]]
        more = rules.to_cursor(rows[-1].created, rows[-1].key) if len(found) > limit else None
        return Page(tuple(map(rules.record_of, rows)), more)

    async def claim(
        self, worker: str, *, lease: float, limit: int, tools: Collection[str] | None = None
    ) -> Sequence[Claim]:
        now, length = self._now(), rules.span(lease)
        self._lapse(now)
        names = self._queues.keys() if tools is None else self._queues.keys() & set(tools)
        tops = [(top, name) for name in names if (top := self._queues[name].first(self._kept))]
        heapify(tops)
        claims: list[Claim] = []
        over: list[Row] = []
        while tops and len(claims) < limit:
            (_, key), name = heappop(tops)
            row, queue = self._kept[key].row, self._queues[name]
            queue.pop()
            if rules.alive(row, now):
                claims.append(Claim(rules.record_of(row), rules.hold(row, worker, now + length)))
                heappush(self._leases, (row.lease, key))
            else:
                over.append(row)
            if top := queue.first(self._kept):
                heappush(tops, (top, name))
        for row in over:
            self._queues[row.tool].put(row)
        return claims

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        now, length = self._now(), rules.span(lease)
        held: set[str] = set()
        for id, token in claims:
            kept = self._ids.get(id)
            if kept and rules.renew(kept.row, token, until=now + length, now=now):
                heappush(self._leases, (kept.row.lease, kept.row.key))
                held.add(id)
        return held

    async def release(self, id: str, token: int) -> None:
        self._now()
        kept = self._ids.get(id)
        if kept and rules.release(kept.row, token):
            self._changed(kept.row, grown=False)

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        now = self._now()
        gone: list[Record] = []
        while self._expiring and self._expiring[0][0] <= now and len(gone) < limit:
            row = self._kept.pop(heappop(self._expiring)[1]).row
            del self._ids[row.id]
            self._of_all.remove(row)
            if self._of[row.principal].remove(row):
                del self._of[row.principal]
            self._counts[row.phase] -= 1
            gone.append(rules.record_of(row))
        self._hub.wake([record.id for record in gone], ready=False)
        return gone

    async def count(self, phase: Phase) -> int:
        self._now()
        return self._counts[rules.known_phase(phase)]

    async def oldest(self) -> int | None:
        self._lapse(self._now())
        tops = [top for queue in self._queues.values() if (top := queue.first(self._kept))]
        return self._kept[min(tops)[1]].row.updated if tops else None

    async def use_once(self, key: str, *, until: int) -> bool:
        now, until = self._now(), rules.moment(until)
        while self._noted_until and self._noted_until[0][0] <= now:
            self._noted.remove(heappop(self._noted_until)[1])
        if key in self._noted:
            return False
        self._noted.add(key)
        heappush(self._noted_until, (until, key))
        return True

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        self._now()
        return self._hub.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self._now()
        return self._hub.watch_ready()

    async def publish(self, topic: str, data: Any) -> None:
        self._now()
        self._hub.tell(topic, msgspec.json.decode(rules.encode(data)))

    def hear(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self._now()
        return self._hub.hear(topic)

    def _now(self) -> int:
        """The time in milliseconds, of a store that is open."""
        if not self._is_open:
            raise StoreUnavailable("The store is not open: call open() first.")
        return int(self._clock() * 1000)

    def _alive(self, id: str) -> _Kept | None:
        now, kept = self._now(), self._ids.get(id)
        return kept if kept and rules.alive(kept.row, now) else None

    def _lapse(self, now: int) -> None:
        """End the leases that ran out. What the heap says may be old: the row knows."""
        while self._leases and self._leases[0][0] <= now:
            until, key = heappop(self._leases)
            kept = self._kept.get(key)
            if kept and kept.row.lease == until:
                kept.row.lease = 0
                self._queues.setdefault(kept.row.tool, _Queue()).put(kept.row)

    def _changed(self, row: Row, *, grown: bool = True) -> None:
        if free := rules.free(row):
            self._queues.setdefault(row.tool, _Queue()).put(row)
        self._hub.wake((row.id,) if grown else (), free)
