"""A store in the memory of one process, for tests and for servers whose tasks may end with the process.

It fulfils the whole contract except durability. It owns its rows and encodes entries as JSON, like every
store, so that a caller cannot change an entry after writing it. It does not know what entries mean.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from antiphon.store import rules, unavailable
from antiphon.store.contract import UNSET, Claim, Entry, Page, Phase, Record, UnsetType, Watch
from antiphon.store.rules import Row
from antiphon.store.watchers import Watchers

__all__ = ["MemoryStore"]

logger = logging.getLogger("antiphon")


class _StoredTask(msgspec.Struct):
    """A task's row, and its entries as kind, time and JSON text."""

    row: Row
    log: list[tuple[str, int, str]]


class _ReadyQueue:
    """The tasks of one tool of a server that may be claimable, oldest first.

    A task that is no longer claimable is removed when it reaches the front.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._members: set[int] = set()

    def put(self, row: Row) -> None:
        if row.key not in self._members:
            self._members.add(row.key)
            heappush(self._heap, (row.created, row.key))

    def first(self, tasks: dict[int, _StoredTask]) -> tuple[int, int] | None:
        while self._heap:
            task = tasks.get(self._heap[0][1])
            if task is not None and rules.is_claimable(task.row):
                return self._heap[0]
            self.pop()
        return None

    def pop(self) -> None:
        self._members.discard(heappop(self._heap)[1])


class _ExpiryQueue:
    """The tasks that have a time of expiry, earliest first.

    An item whose task has another time by now, or has left this queue, is removed when it reaches the front.
    """

    def __init__(self, accept: Callable[[Row], bool]) -> None:
        self._accept = accept
        self._heap: list[tuple[int, int]] = []
        self._members: set[tuple[int, int]] = set()

    def put(self, row: Row) -> None:
        if row.expires is None or not self._accept(row):
            return
        item = (row.expires, row.key)
        if item not in self._members:
            self._members.add(item)
            heappush(self._heap, item)

    def take(self, tasks: dict[int, _StoredTask], now: int, limit: int) -> list[Row]:
        """Remove and return up to `limit` tasks whose time has passed."""
        rows: list[Row] = []
        while self._heap and self._heap[0][0] <= now and len(rows) < limit:
            item = heappop(self._heap)
            self._members.discard(item)
            task = tasks.get(item[1])
            if task is not None and task.row.expires == item[0] and self._accept(task.row):
                rows.append(task.row)
        return rows


class _TasksByAge:
    """Tasks sorted by age. A removed task is only marked; the list is rebuilt once half of it is marked."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._removed: set[int] = set()

    def add(self, row: Row) -> None:
        insort(self._keys, (row.created, row.key))

    def remove(self, row: Row) -> bool:
        """Remove a task; return true if no task is left."""
        self._removed.add(row.key)
        if len(self._removed) * 2 > len(self._keys):
            self._keys = [pair for pair in self._keys if pair[1] not in self._removed]
            self._removed.clear()
        return not self._keys

    def older_than(self, position: tuple[int, int], accept: Callable[[int], bool], limit: int) -> list[int]:
        found: list[int] = []
        index = bisect_left(self._keys, position)
        while index and len(found) < limit:
            index -= 1
            key = self._keys[index][1]
            if key not in self._removed and accept(key):
                found.append(key)
        return found


class MemoryStore:
    """Tasks in the memory of this process, lost when it ends.

    For tests, `clock` replaces the wall clock, and the monotonic clock by which leases go.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.time
        self._lease_clock = clock or time.monotonic
        self._watchers = Watchers()
        self._is_open = False
        self._last_key = 0
        self._by_id: dict[str, _StoredTask] = {}
        self._by_key: dict[int, _StoredTask] = {}
        self._queues: dict[tuple[str, str], _ReadyQueue] = {}  # by server and tool
        self._leases: list[tuple[int, int]] = []
        self._expiring = _ExpiryQueue(lambda row: row.phase == "ended")
        self._overdue: dict[str, _ExpiryQueue] = {}  # by server
        self._all_by_age = _TasksByAge()
        self._principal_by_age: dict[tuple[str, str], _TasksByAge] = {}  # by principal and server
        self._counts: Counter[tuple[str, Phase]] = Counter()  # by server and phase
        self._servers: set[str] = set()
        self._used_keys: set[str] = set()
        self._used_until: list[tuple[int, str]] = []

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        unfinished = self._count("ready") + self._count("waiting")
        if self._is_open and unfinished:
            logger.info("The store in memory was closed: %d tasks that had not ended are lost.", unfinished)
        self._is_open = False
        self._watchers.close()

    async def create(
        self,
        record: Record,
        entries: Sequence[tuple[str, Any]],
        *,
        worker: str | None = None,
        lease: float = 0.0,
    ) -> Claim | None:
        now, length, encoded = self._now(), rules.lease_milliseconds(lease), rules.encode_entries(entries)
        row = rules.new_row(record, len(encoded), key=self._last_key + 1, held=worker is not None)
        if row.id in self._by_id:
            raise rules.id_in_use(row.id)
        self._last_key = row.key
        if worker is not None:
            rules.claim(row, worker, self._lease_now() + length)
            heappush(self._leases, (row.lease, row.key))
        task = _StoredTask(row, [(kind, now, data) for kind, data in encoded])
        self._by_id[row.id] = self._by_key[row.key] = task
        self._all_by_age.add(row)
        self._principal_by_age.setdefault((row.principal, row.server), _TasksByAge()).add(row)
        self._servers.add(row.server)
        self._counts[row.server, row.phase] += 1
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
        expires: int | UnsetType | None = UNSET,
        unwind_by: int | None = None,
    ) -> int:
        now, encoded, text = self._now(), rules.encode_entries(entries), rules.encode_json(head)
        rules.check_phase(phase)
        rules.check_expires(expires)
        rules.check_expires(unwind_by)
        task = self._by_id.get(id)
        row = rules.check_append(task.row if task else None, id, expect=expect, token=token, now=now)
        self._counts[row.server, row.phase] -= 1
        self._by_key[row.key].log.extend((kind, now, data) for kind, data in encoded)
        rules.apply_append(row, len(encoded), phase=phase, now=now, expires=expires, unwind_by=unwind_by)
        self._counts[row.server, row.phase] += 1
        row.head = text
        self._changed(row)
        return row.version

    async def get(self, id: str) -> Record | None:
        task = self._live_task(id)
        return rules.record_of(task.row) if task else None

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        task, start = self._live_task(id), max(after, 0)
        if task is None:
            return []
        return [
            Entry(start + offset, kind, at, msgspec.json.decode(data))
            for offset, (kind, at, data) in enumerate(task.log[start : start + max(limit, 0)], 1)
        ]

    async def list(
        self,
        principal: str | None,
        *,
        cursor: str | None = None,
        limit: int = 100,
        server: str | None = None,
    ) -> Page:
        now, position = self._now(), rules.decode_cursor(cursor)
        rules.check_page_limit(limit)
        orders = self._orders(principal, server)

        def accept(key: int) -> bool:
            row = self._by_key[key].row
            return rules.is_live(row, now) and (server is None or row.server in rules.servers_of(server))

        found = [key for order in orders for key in order.older_than(position, accept, limit + 1)]
        found.sort(key=lambda key: (self._by_key[key].row.created, key), reverse=True)
        rows = [self._by_key[key].row for key in found[:limit]]
        next_cursor = rules.encode_cursor(rows[-1].created, rows[-1].key) if len(found) > limit else None
        return Page(tuple(map(rules.record_of, rows)), next_cursor)

    async def claim(
        self,
        worker: str,
        *,
        lease: float,
        limit: int,
        tools: Collection[str] | None = None,
        server: str | None = None,
    ) -> Sequence[Claim]:
        now, length = self._lease_now(), rules.lease_milliseconds(lease)
        self._end_expired_leases(now)
        names = self._queues_of(server, tools)
        tops = [(top, name) for name in names if (top := self._queues[name].first(self._by_key))]
        heapify(tops)
        claims: list[Claim] = []
        while tops and len(claims) < limit:
            (_, key), name = heappop(tops)
            row, queue = self._by_key[key].row, self._queues[name]
            queue.pop()
            claims.append(Claim(rules.record_of(row), rules.claim(row, worker, now + length)))
            heappush(self._leases, (row.lease, key))
            if top := queue.first(self._by_key):
                heappush(tops, (top, name))
        return claims

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        now, length = self._lease_now(), rules.lease_milliseconds(lease)
        held: set[str] = set()
        for id, token in claims:
            task = self._by_id.get(id)
            if task and rules.renew(task.row, token, until=now + length):
                heappush(self._leases, (task.row.lease, task.row.key))
                if not rules.is_stopping(task.row):
                    held.add(id)
        return held

    def lease_keeper(self) -> None:
        return None

    async def release(self, id: str, token: int, *, delay: float = 0.0) -> None:
        now, length = self._lease_now(), rules.lease_milliseconds(delay, kind="delay")
        task = self._by_id.get(id)
        if task and rules.release(task.row, token, until=now + length if length else 0):
            if length:
                heappush(self._leases, (task.row.lease, task.row.key))
            self._changed(task.row, grown=False)

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        records: list[Record] = []
        for row in self._expiring.take(self._by_key, self._now(), limit):
            del self._by_key[row.key], self._by_id[row.id]
            self._all_by_age.remove(row)
            if self._principal_by_age[row.principal, row.server].remove(row):
                del self._principal_by_age[row.principal, row.server]
            self._counts[row.server, row.phase] -= 1
            records.append(rules.record_of(row))
        self._watchers.notify([record.id for record in records], ready=False)
        return records

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        names = self._overdue.keys() if server is None else self._overdue.keys() & {*rules.servers_of(server)}
        rows: list[Row] = []
        for name in names:
            found = self._overdue[name].take(self._by_key, self._now(), limit)
            for row in found:
                self._overdue[name].put(row)
            rows += found
        rows.sort(key=lambda row: (row.expires or 0, row.key))
        return [rules.record_of(row) for row in rows[: max(limit, 0)]]

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        self._now()
        return self._count(rules.check_phase(phase), server)

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        self._now()
        rules.check_phase(phase)
        start, found = rules.decode_cursor(None), 0
        for order in self._orders(principal, None):
            found += len(order.older_than(start, lambda key: self._by_key[key].row.phase == phase, most))
        return min(found, most)

    async def oldest_ready(self, *, server: str | None = None) -> int | None:
        self._end_expired_leases(self._lease_now())
        names = self._queues_of(server, None)
        tops = [top for name in names if (top := self._queues[name].first(self._by_key))]
        return self._by_key[min(tops)[1]].row.updated if tops else None

    async def probe(self) -> None:
        self._now()

    async def use_once(self, key: str, *, until: int) -> bool:
        now, until = self._now(), rules.check_timestamp(until)
        while self._used_until and self._used_until[0][0] <= now:
            self._used_keys.remove(heappop(self._used_until)[1])
        if key in self._used_keys:
            return False
        self._used_keys.add(key)
        heappush(self._used_until, (until, key))
        return True

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        self._now()
        return self._watchers.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self._now()
        return self._watchers.watch_ready()

    async def publish(self, topic: str, data: Any) -> None:
        self._now()
        self._watchers.deliver(topic, msgspec.json.decode(rules.encode_json(data)))

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self._now()
        return self._watchers.subscribe(topic)

    def _now(self) -> int:
        """Return the time in milliseconds; raises `StoreUnavailable` if the store is not open."""
        if not self._is_open:
            raise unavailable.not_open()
        return int(self._clock() * 1000)

    def _lease_now(self) -> int:
        """Return the time by which leases go, in milliseconds; raises `StoreUnavailable` like `_now`."""
        self._now()
        return int(self._lease_clock() * 1000)

    def _count(self, phase: Phase, server: str | None = None) -> int:
        names = self._servers if server is None else rules.servers_of(server)
        return sum(self._counts[name, phase] for name in names)

    def _orders(self, principal: str | None, server: str | None) -> Sequence[_TasksByAge]:
        """Return the sorted tasks of a principal on some servers, or of all principals on all servers."""
        if principal is None:
            return [self._all_by_age]
        names = self._servers if server is None else rules.servers_of(server)
        found = (self._principal_by_age.get((principal, name)) for name in names)
        return [order for order in found if order is not None]

    def _queue_of(self, row: Row) -> _ReadyQueue:
        return self._queues.setdefault((row.server, row.tool), _ReadyQueue())

    def _queues_of(self, server: str | None, tools: Collection[str] | None) -> Sequence[tuple[str, str]]:
        """Return the names of the queues of some servers and tools; `None` for all of them."""
        if server is not None and tools is not None:
            pairs = ((name, tool) for name in rules.servers_of(server) for tool in set(tools))
            return [pair for pair in pairs if pair in self._queues]
        servers = None if server is None else rules.servers_of(server)
        return [
            (name, tool)
            for name, tool in self._queues
            if (servers is None or name in servers) and (tools is None or tool in tools)
        ]

    def _live_task(self, id: str) -> _StoredTask | None:
        now, task = self._now(), self._by_id.get(id)
        return task if task and rules.is_live(task.row, now) else None

    def _end_expired_leases(self, now: int) -> None:
        """End the leases that have expired. The heap may hold outdated times; the row has the current one."""
        while self._leases and self._leases[0][0] <= now:
            until, key = heappop(self._leases)
            task = self._by_key.get(key)
            if task and task.row.lease == until:
                task.row.lease = 0
                self._queue_of(task.row).put(task.row)

    def _changed(self, row: Row, *, grown: bool = True) -> None:
        self._expiring.put(row)
        self._overdue.setdefault(row.server, _ExpiryQueue(_has_not_ended)).put(row)
        if claimable := rules.is_claimable(row):
            self._queue_of(row).put(row)
        self._watchers.notify((row.id,) if grown else (), claimable)


def _has_not_ended(row: Row) -> bool:
    return row.phase != "ended"
