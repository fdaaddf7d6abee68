"""A store in the memory of one process, for tests and for servers whose tasks may end with the process.

It fulfils the whole contract except durability. It owns its rows and encodes entries as JSON, like every
store, so that a caller cannot change an entry after writing it. It does not know what entries mean.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from antiphon import wall_clock
from antiphon.store import rules, unavailable
from antiphon.store.contract import (
    UNSET,
    Claim,
    Count,
    Entry,
    Event,
    HourlyTally,
    KeptEvent,
    Lease,
    Page,
    Phase,
    Record,
    Tallies,
    TaskFilter,
    UnsetType,
    Watch,
)
from antiphon.store.list_rules import (
    check_page_limit,
    decode_cursor,
    encode_cursor,
    parse_count,
    parse_list,
)
from antiphon.store.memory_lists import TaskLists
from antiphon.store.memory_queues import ExpiryQueue, ReadyQueue, StoredTask
from antiphon.store.memory_tallies import MemoryTallies
from antiphon.store.memory_waits import EventLog, StoredEvent, WaitingTasks
from antiphon.store.outcomes import status_of
from antiphon.store.rules import EncodedEntry, Row
from antiphon.store.tally_rules import MAX_EXPIRED_TASKS, count_of, has_tally, hour_of
from antiphon.store.turns import Turns
from antiphon.store.watchers import Watchers

__all__ = ["MemoryStore"]

logger = logging.getLogger("antiphon")


class MemoryStore:
    """Tasks in the memory of this process, lost when it ends.

    For tests, `clock` replaces the wall clock, and the monotonic clock by which leases go.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self._clock, self._lease_clock = clock or wall_clock.now, clock or _lease_time
        self._watchers = Watchers()
        self._is_open = False
        self._last_key = 0
        self._by_id: dict[str, StoredTask] = {}
        self._by_key: dict[int, StoredTask] = {}
        self._queues: dict[tuple[str, str], ReadyQueue] = {}  # by server and tool
        self.turns = Turns()
        self._leases: list[tuple[int, int]] = []
        self._expiring = ExpiryQueue(lambda row: row.phase == "ended")
        self._overdue: dict[str, ExpiryQueue] = {}  # by server
        self._waiting = WaitingTasks()
        self._events = EventLog()
        self._lists = TaskLists(self._by_key)
        self._tallies = MemoryTallies()
        self._counts: Counter[tuple[str, Phase]] = Counter()  # by server and phase
        self._sharers: dict[str, set[int]] = {}  # the keys of the tasks of each sharer in their records
        self._usages: Counter[tuple[str, str]] = Counter()  # bytes, by server and sharer
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
        row.wakes = rules.wake_time(row.wakes, now)
        if worker is not None:
            rules.claim(row, worker, self._lease_now() + length)
            heappush(self._leases, (row.lease, row.key))
        self._add(row, [(kind, now, data) for kind, data in encoded])
        return None if worker is None else Claim(rules.record_of(row), row.token, now)

    async def restore(self, record: Record, entries: Sequence[Entry], *, token: int = 0) -> bool:
        now, encoded = self._now(), rules.encode_restored(entries)
        row = rules.restored_row(record, entries, token, key=self._last_key + 1)
        if row.id in self._by_id:
            return False
        row.wakes = rules.wake_time(row.wakes, now)
        self._add(row, encoded)
        return True

    async def extend(
        self, record: Record, entries: Sequence[Entry], *, token: int, expect: int, expect_token: int
    ) -> bool:
        now, encoded = self._now(), rules.encode_restored(entries)
        fresh, task = rules.restored_row(record, entries, token), self._by_id.get(record.id)
        if task is None:
            return False
        before, row = task.row.phase, task.row
        if not rules.extend(row, fresh, expect=expect, expect_token=expect_token, now=now):
            return False
        task.log.extend(encoded[expect:])
        self._use(row, [(kind, data) for kind, _, data in encoded[expect:]])
        self._counts[row.server, before] -= 1
        self._counts[row.server, row.phase] += 1
        self._tallies.change(row, fresh.tallied)
        if rules.is_queued_again(row, before):
            self.turns.assign(row, now)
        self._changed(row)
        return True

    def _add(self, row: Row, log: list[tuple[str, int, str]]) -> None:
        """Add a new task, behind the others of its principal if it has to wait for a worker."""
        self._last_key = row.key
        if row.worker is None and rules.is_claimable(row):
            self.turns.assign(row, row.created)
        self._by_id[row.id] = self._by_key[row.key] = StoredTask(row, log)
        self._lists.add(row)
        self._servers.add(row.server)
        self._use(row, [(kind, data) for kind, _, data in log])
        if row.sharer:
            self._sharers.setdefault(row.sharer, set()).add(row.key)
        self._counts[row.server, row.phase] += 1
        self._tallies.add(row)
        self._changed(row)

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
        wakes: int | None = None,
        tags: Collection[str] = (),
        before: int | None = None,
    ) -> int:
        now, encoded, text = self._now(), rules.encode_entries(entries), rules.encode_json(head)
        rules.check_phase(phase)
        wakes, encoded_tags = rules.encode_waits(phase, wakes, tags)
        rules.check_expires(expires)
        rules.check_expires(unwind_by)
        task = self._by_id.get(id)
        row = rules.check_append(
            task.row if task else None, id, expect=expect, token=token, now=now, before=before
        )
        earlier = row.phase
        self._counts[row.server, earlier] -= 1
        self._by_key[row.key].log.extend((kind, now, data) for kind, data in encoded)
        self._use(row, encoded)
        rules.apply_append(
            row,
            len(encoded),
            phase=phase,
            now=now,
            expires=expires,
            unwind_by=unwind_by,
            wakes=wakes,
            tags=encoded_tags,
        )
        self._counts[row.server, row.phase] += 1
        self._tallies.change(row, status_of(row.phase, head))
        row.head = text
        if rules.is_queued_again(row, earlier):
            self.turns.assign(row, now)
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
        filter: TaskFilter | None = None,
        oldest_first: bool = False,
    ) -> Page:
        now = self._now()
        wanted = parse_list(
            principal, cursor=cursor, limit=limit, server=server, filter=filter, oldest_first=oldest_first
        )
        return self._lists.page(wanted, now)

    async def tallies(self, *, server: str | None = None) -> Tallies:
        expired = self._expiring.due(self._by_key, self._now(), MAX_EXPIRED_TASKS + 1)
        return self._tallies.tallies(rules.servers_of(server), expired)

    async def count_listed(
        self,
        principal: str | None,
        *,
        server: str | None = None,
        filter: TaskFilter | None = None,
        most: int = 10_000,
    ) -> Count:
        wanted = parse_count(principal, server=server, filter=filter, most=most)
        if has_tally(principal, wanted.filter):
            return count_of(await self.tallies(server=server), wanted.filter)
        found = self._lists.count(wanted, self._now())
        return Count(min(found, most), is_exact=found <= most)

    async def hourly_tallies(self, *, since: int, server: str | None = None) -> Sequence[HourlyTally]:
        self._now()
        return self._tallies.hourly(hour_of(rules.check_timestamp(since)), rules.servers_of(server))

    async def leases(self) -> Sequence[Lease]:
        now, held = self._lease_now(), dict[tuple[str, str, str], list[int]]()
        for until, key in set(self._leases):
            task = self._by_key.get(key)
            if task is not None and task.row.lease == until and task.row.worker is not None:
                held.setdefault((task.row.worker, task.row.server, task.row.tool), []).append(until)
        return [Lease(*names, len(ends), (min(ends) - now) / 1000) for names, ends in sorted(held.items())]

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
            self.turns.note_claim(row)
            claims.append(Claim(rules.record_of(row), rules.claim(row, worker, now + length), self._now()))
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

    async def release(self, id: str, token: int, *, delay: float = 0.0, requeue: bool = False) -> None:
        now, length = self._lease_now(), rules.lease_milliseconds(delay, kind="delay")
        task = self._by_id.get(id)
        if task and rules.release(task.row, token, until=now + length if length else 0):
            if length:
                heappush(self._leases, (task.row.lease, task.row.key))
            if requeue:
                self.turns.assign(task.row, task.row.created)
            self._changed(task.row, grown=False)

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        records: list[Record] = []
        for row in self._expiring.take(self._by_key, self._now(), limit):
            del self._by_key[row.key], self._by_id[row.id]
            self._lists.remove(row)
            self._tallies.remove(row)
            self._forget(row)
            self._counts[row.server, row.phase] -= 1
            records.append(rules.record_of(row))
        self._watchers.notify([record.id for record in records], ready=False)
        if limit > 0:
            self._events.delete_old(self._now())
            self._tallies.delete_old_hours(self._now())
        return records

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        names = self._overdue.keys() if server is None else self._overdue.keys() & {*rules.servers_of(server)}
        rows: list[Row] = []
        for name in names:
            rows += self._overdue[name].due(self._by_key, self._now(), limit)
        rows.sort(key=lambda row: (row.expires or 0, row.key))
        return [rules.record_of(row) for row in rows[: max(limit, 0)]]

    async def wake(
        self, entry: tuple[str, Any], *, limit: int = 1000, server: str | None = None
    ) -> Sequence[str]:
        now, encoded = self._now(), rules.encode_entries([entry])
        keys = self._waiting.take_due(now, limit, rules.servers_of(server))
        return self._wake(keys, encoded, now)

    async def wake_tagged(
        self, tags: Collection[str], entry: tuple[str, Any], *, limit: int = 1000
    ) -> Sequence[str]:
        now, encoded = self._now(), rules.encode_entries([entry])
        start = decode_cursor(None, oldest_first=True)
        return self._wake(self._waiting.tagged(rules.check_tags(tags), start, limit), encoded, now)

    async def list_tagged(
        self, tags: Collection[str], *, cursor: str | None = None, limit: int = 100
    ) -> Page:
        self._now()
        position = decode_cursor(cursor, oldest_first=True)
        check_page_limit(limit)
        found = self._waiting.tagged(rules.check_tags(tags), position, limit + 1)
        rows = [self._by_key[key].row for key in found[:limit]]
        next_cursor = encode_cursor(rows[-1].created, rows[-1].key) if len(found) > limit else None
        return Page(tuple(map(rules.record_of, rows)), next_cursor)

    async def add_event(self, topic: str, id: str, data: Any, *, until: int) -> bool:
        now, text = self._now(), rules.encode_json(data)
        rules.check_text(topic)
        rules.check_text(id)
        return self._events.add(topic, id, text, until=rules.check_timestamp(until), now=now)

    async def read_events(self, topic: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        return self._events.read(rules.check_text(topic), after=after, limit=limit, now=self._now())

    async def list_events(
        self, *, after: tuple[str, int] | None = None, limit: int = 100
    ) -> Sequence[KeptEvent]:
        return self._events.list(after, limit, self._now())

    async def restore_event(self, kept: KeptEvent) -> bool:
        topic, id, number, at, text, until = rules.encode_event(kept)
        return self._events.restore(topic, StoredEvent(number, id, at, text, until), now=self._now())

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        self._now()
        return self._count(rules.check_phase(phase), server)

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        self._now()
        return self._lists.count_of_principal(principal, rules.check_phase(phase), most)

    async def count_of_sharer(self, sharer: str, phase: Phase, *, most: int) -> int:
        self._now()
        rules.check_phase(phase)
        rows = (self._by_key[key].row for key in self._sharers.get(sharer, ()))
        return min(sum(row.phase == phase and not row.lease for row in rows), most)

    async def stored_bytes(self, sharer: str = "", *, server: str | None = None) -> int:
        self._now()
        names = self._servers if server is None else rules.servers_of(server)
        return sum(self._usages[name, sharer] for name in names)

    async def count_queued(self, tool: str, *, most: int, server: str | None = None) -> int:
        self._now()
        queues = (self._queues[name] for name in self._queues_of(server, [tool]))
        return min(sum(queue.count(self._by_key) for queue in queues), most)

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

    def watch_all(self) -> AbstractAsyncContextManager[Watch]:
        self._now()
        return self._watchers.watch_all()

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

    def _queue_of(self, row: Row) -> ReadyQueue:
        return self._queues.setdefault((row.server, row.tool), ReadyQueue())

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

    def _live_task(self, id: str) -> StoredTask | None:
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
                self.turns.put(task.row)

    def _wake(self, keys: Sequence[int], encoded: Sequence[EncodedEntry], now: int) -> Sequence[str]:
        """Make waiting tasks ready; return their ids."""
        ids: list[str] = []
        for key in keys:
            task = self._by_key[key]
            row = task.row
            task.log.extend((kind, now, data) for kind, data in encoded)
            self._use(row, encoded)
            rules.apply_append(row, len(encoded), phase="ready", now=now)
            self._counts[row.server, "waiting"] -= 1
            self._counts[row.server, "ready"] += 1
            self._tallies.change(row, "ready")
            self.turns.assign(row, now)
            self._changed(row)
            ids.append(row.id)
        return ids

    def _use(self, row: Row, entries: Sequence[EncodedEntry]) -> None:
        """Count the bytes of entries for the sharer of their task."""
        added = rules.size_of(entries)
        row.bytes += added
        self._add_usage(row, added)

    def _add_usage(self, row: Row, added: int) -> None:
        sharer = row.sharer or row.principal
        for key in {(row.server, sharer), (row.server, "")}:
            self._usages[key] += added
            if not self._usages[key]:
                del self._usages[key]

    def _forget(self, row: Row) -> None:
        """Count a deleted task no longer for its sharer."""
        self._add_usage(row, -row.bytes)
        if row.sharer:
            self._sharers[row.sharer].remove(row.key)
            if not self._sharers[row.sharer]:
                del self._sharers[row.sharer]

    def _changed(self, row: Row, *, grown: bool = True) -> None:
        self._waiting.update(row)
        self._expiring.put(row)
        self._overdue.setdefault(row.server, ExpiryQueue(_has_not_ended)).put(row)
        if claimable := rules.is_claimable(row):
            self._queue_of(row).put(row)
            self.turns.put(row)
        else:
            self.turns.remove(row)
        self._watchers.notify((row.id,) if grown else (), claimable)


def _lease_time() -> float:
    return time.monotonic() + wall_clock.leases_ahead


def _has_not_ended(row: Row) -> bool:
    return row.phase != "ended"
