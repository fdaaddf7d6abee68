"""The PostgreSQL store: hands each operation to the connection that runs it.

One connection writes and shares commits between callers, some read, and one listens for the changes of other
processes. This module owns the connections and the watchers. It knows neither SQL nor what entries mean.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from antiphon.store import rules, unavailable
from antiphon.store.commit_stats import CommitStats
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
from antiphon.store.database_operations import (
    MAX_BATCH_OPERATIONS,
    MAX_EXPIRED_TASKS,
    MAX_WOKEN_TASKS,
    run_in_portions,
    wait_for_claims,
)
from antiphon.store.list_rules import check_page_limit, decode_cursor, parse_count, parse_list
from antiphon.store.postgres.batcher import Batcher
from antiphon.store.postgres.change_listener import ChangeListener
from antiphon.store.postgres.claimer import ClaimTasks
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.event_log import AddEvent
from antiphon.store.postgres.expirer import Expire
from antiphon.store.postgres.lease_keeper import PostgresLeaseKeeper
from antiphon.store.postgres.migrations import prepare
from antiphon.store.postgres.reader import (
    CountListed,
    CountOfPrincipal,
    CountOfSharer,
    CountQueued,
    CountTasks,
    GetHourlyTallies,
    GetLeases,
    GetOldestReady,
    GetOverdue,
    GetRecord,
    GetTallies,
    ListEvents,
    ListTagged,
    Reader,
    ReadEvents,
    ReadLog,
    ReadOperation,
    StoredBytes,
)
from antiphon.store.postgres.restorer import Extend, Restore
from antiphon.store.postgres.waker import WakeTagged, WakeTasks
from antiphon.store.postgres.writer import (
    Append,
    Create,
    Probe,
    Publish,
    Release,
    Renew,
    UseOnce,
    WriteOperation,
    Writer,
    conflict_keys,
)
from antiphon.store.tally_rules import count_of, has_tally, hour_of
from antiphon.store.unreadable import UnreadableRecords
from antiphon.store.watchers import Watchers

__all__ = ["PostgresStore"]

_READ_CONNECTIONS = 2
"""Connections that read: two, so that a slow read does not hold up the others."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an open store."""

    writer: Writer
    reader: Reader
    listener: ChangeListener
    writing: Batcher[WriteOperation]
    reading: Batcher[ReadOperation]

    @property
    def statements(self) -> int:
        return self.writer.connection.statements + self.reader.statements + self.listener.statements


class PostgresStore:
    """Tasks in a PostgreSQL database, which any number of processes on any number of machines may share.

    The store uses the clock of the database, so the clocks of the processes do not matter; `clock` is for
    tests. `timeout` is how many seconds a connection attempt or a statement may take. `poll_interval` is how
    many seconds a lost notification may delay a change, and `max_queued` how many operations may be queued.
    A store belongs to the event loop that opened it.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        timeout: float = 10.0,
        poll_interval: float = 1.0,
        max_queued: int = 20_000,
    ) -> None:
        self._database = Database.from_url(url, timeout)
        self._clock = clock
        self._poll_interval = poll_interval
        self._max_queued = max_queued
        self._watchers = Watchers()
        self._parts: Parts | None = None
        self._statements = 0
        self.commit_stats = CommitStats()
        """The commits of this store since it was created."""

    @property
    def commits(self) -> int:
        """The number of transactions that this store has committed since it was created."""
        return self.commit_stats.commits

    @property
    def statements(self) -> int:
        """The number of statements that this store has sent since it was created."""
        return self._statements + (self._parts.statements if self._parts else 0)

    async def open(self) -> None:
        if self._parts is not None:
            return
        await prepare(self._database)
        origin = secrets.token_hex(8)
        unreadable = UnreadableRecords(self._database.display_url)
        writer = Writer(
            self._database,
            origin,
            self._now,
            watchers=self._watchers,
            stats=self.commit_stats,
            unreadable=unreadable,
        )
        reader = Reader(self._database, self._now, _READ_CONNECTIONS, unreadable)
        listener = ChangeListener(self._database, origin, self._watchers, self._poll_interval)
        await listener.start()
        writing = Batcher(
            writer.run,
            max_batch=MAX_BATCH_OPERATIONS,
            max_queued=self._max_queued,
            conflict_keys=conflict_keys,
        )
        reading = Batcher(
            reader.run,
            max_batch=MAX_BATCH_OPERATIONS,
            max_queued=self._max_queued,
            max_running=_READ_CONNECTIONS,
        )
        self._parts = Parts(writer, reader, listener, writing, reading)

    async def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        await parts.writing.close()
        await parts.reading.close()
        self._statements += parts.statements
        await parts.listener.close()
        await parts.reader.close()
        await parts.writer.close()
        self._watchers.close()

    async def create(
        self,
        record: Record,
        entries: Sequence[tuple[str, Any]],
        *,
        worker: str | None = None,
        lease: float = 0.0,
    ) -> Claim | None:
        encoded, length = rules.encode_entries(entries), rules.lease_milliseconds(lease)
        row = rules.new_row(record, len(encoded), held=worker is not None)
        claimed: tuple[int, int] | None = await self._write(Create(row, encoded, worker, length))
        return None if claimed is None else Claim(rules.created_record(record, len(encoded)), *claimed)

    async def restore(self, record: Record, entries: Sequence[Entry], *, token: int = 0) -> bool:
        row, encoded = rules.restored_row(record, entries, token), rules.encode_restored(entries)
        is_new: bool = await self._write(Restore(row, encoded))
        return is_new

    async def extend(
        self, record: Record, entries: Sequence[Entry], *, token: int, expect: int, expect_token: int
    ) -> bool:
        row, encoded = rules.restored_row(record, entries, token), rules.encode_restored(entries)
        is_extended: bool = await self._write(Extend(row, encoded[expect:], expect, expect_token))
        return is_extended

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
        encoded, text = rules.encode_entries(entries), rules.encode_json(head)
        rules.check_phase(phase)
        rules.check_text(id)
        rules.check_expires(expires)
        rules.check_expires(unwind_by)
        wakes, encoded_tags = rules.encode_waits(phase, wakes, tags)
        version: int = await self._write(
            Append(id, encoded, expect, phase, text, token, expires, unwind_by, wakes, encoded_tags, before)
        )
        return version

    async def get(self, id: str) -> Record | None:
        rules.check_text(id)
        record: Record | None = await self._read(GetRecord(id))
        return record

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        rules.check_text(id)
        entries: Sequence[Entry] = await self._read(ReadLog(id, max(after, 0), max(limit, 0)))
        return entries

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
        page: Page = await self._read(
            parse_list(
                principal, cursor=cursor, limit=limit, server=server, filter=filter, oldest_first=oldest_first
            )
        )
        return page

    async def tallies(self, *, server: str | None = None) -> Tallies:
        tallies: Tallies = await self._read(GetTallies(rules.servers_of(server)))
        return tallies

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
        found: int = await self._read(CountListed(wanted))
        return Count(min(found, most), is_exact=found <= most)

    async def hourly_tallies(self, *, since: int, server: str | None = None) -> Sequence[HourlyTally]:
        operation = GetHourlyTallies(hour_of(rules.check_timestamp(since)), rules.servers_of(server))
        tallies: Sequence[HourlyTally] = await self._read(operation)
        return tallies

    async def leases(self) -> Sequence[Lease]:
        leases: Sequence[Lease] = await self._read(GetLeases())
        return leases

    async def claim(
        self,
        worker: str,
        *,
        lease: float,
        limit: int,
        tools: Collection[str] | None = None,
        server: str | None = None,
    ) -> Sequence[Claim]:
        length, names = rules.lease_milliseconds(lease), None if tools is None else sorted(set(tools))
        if limit < 1:
            return []
        claiming = self._write(ClaimTasks(worker, length, limit, names, rules.servers_of(server)))
        return await wait_for_claims(claiming, self._release)

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        length = rules.lease_milliseconds(lease)
        held: set[str] = await self._write(Renew(tuple(claims), length))
        return held

    def lease_keeper(self) -> PostgresLeaseKeeper:
        self.opened()
        return PostgresLeaseKeeper(self._database, self._now)

    async def release(self, id: str, token: int, *, delay: float = 0.0, requeue: bool = False) -> None:
        length = rules.lease_milliseconds(delay, kind="delay")
        await self._write(Release(id, token, length, requeue))

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        return await run_in_portions(lambda portion: self._write(Expire(portion)), limit, MAX_EXPIRED_TASKS)

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        records: Sequence[Record] = await self._read(GetOverdue(max(limit, 0), rules.servers_of(server)))
        return records

    async def wake(
        self, entry: tuple[str, Any], *, limit: int = 1000, server: str | None = None
    ) -> Sequence[str]:
        (encoded,), servers = rules.encode_entries([entry]), rules.servers_of(server)
        return await run_in_portions(
            lambda portion: self._write(WakeTasks(encoded, portion, servers)), limit, MAX_WOKEN_TASKS
        )

    async def wake_tagged(
        self, tags: Collection[str], entry: tuple[str, Any], *, limit: int = 1000
    ) -> Sequence[str]:
        (encoded,), names = rules.encode_entries([entry]), rules.check_tags(tags)
        return await run_in_portions(
            lambda portion: self._write(WakeTagged(encoded, portion, names)), limit, MAX_WOKEN_TASKS
        )

    async def list_tagged(
        self, tags: Collection[str], *, cursor: str | None = None, limit: int = 100
    ) -> Page:
        position = decode_cursor(cursor, oldest_first=True)
        check_page_limit(limit)
        page: Page = await self._read(ListTagged(rules.check_tags(tags), position, limit))
        return page

    async def add_event(self, topic: str, id: str, data: Any, *, until: int) -> bool:
        rules.check_text(topic)
        rules.check_text(id)
        event = AddEvent(topic, id, rules.encode_json(data), rules.check_timestamp(until))
        is_new: bool = await self._write(event)
        return is_new

    async def read_events(self, topic: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        rules.check_text(topic)
        events: Sequence[Event] = await self._read(ReadEvents(topic, max(after, 0), max(limit, 0)))
        return events

    async def list_events(
        self, *, after: tuple[str, int] | None = None, limit: int = 100
    ) -> Sequence[KeptEvent]:
        operation = ListEvents(*(("", -1) if after is None else after), max(limit, 0))
        events: Sequence[KeptEvent] = await self._read(operation)
        return events

    async def restore_event(self, kept: KeptEvent) -> bool:
        topic, id, number, at, data, until = rules.encode_event(kept)
        is_new: bool = await self._write(AddEvent(topic, id, data, until, number, at))
        return is_new

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        count: int = await self._read(CountTasks(rules.check_phase(phase), rules.servers_of(server)))
        return count

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        rules.check_text(principal)
        operation = CountOfPrincipal(principal, rules.check_phase(phase), most)
        count: int = await self._read(operation)
        return count

    async def count_of_sharer(self, sharer: str, phase: Phase, *, most: int) -> int:
        rules.check_text(sharer)
        count: int = await self._read(CountOfSharer(sharer, rules.check_phase(phase), most))
        return count

    async def stored_bytes(self, sharer: str = "", *, server: str | None = None) -> int:
        size: int = await self._read(StoredBytes(rules.check_text(sharer), rules.servers_of(server)))
        return size

    async def count_queued(self, tool: str, *, most: int, server: str | None = None) -> int:
        operation = CountQueued(rules.check_text(tool), most, rules.servers_of(server))
        count: int = await self._read(operation)
        return count

    async def oldest_ready(self, *, server: str | None = None) -> int | None:
        since: int | None = await self._read(GetOldestReady(rules.servers_of(server)))
        return since

    async def probe(self) -> None:
        await self._write(Probe())

    async def use_once(self, key: str, *, until: int) -> bool:
        rules.check_text(key)
        first: bool = await self._write(UseOnce(key, rules.check_timestamp(until)))
        return first

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        self.opened().listener.add_task(id)
        return self._watchers.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self.opened()
        return self._watchers.watch_ready()

    def watch_all(self) -> AbstractAsyncContextManager[Watch]:
        self.opened()
        return self._watchers.watch_all()

    async def publish(self, topic: str, data: Any) -> None:
        rules.check_text(topic)
        await self._write(Publish(topic, rules.encode_json(data)))

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self.opened()
        return self._watchers.subscribe(topic)

    def opened(self) -> Parts:
        """Return the parts of the open store; raises `StoreUnavailable` if it is not open."""
        if self._parts is None:
            raise unavailable.not_open()
        return self._parts

    def _write(self, operation: WriteOperation) -> asyncio.Future[Any]:
        return self.opened().writing.submit(operation)

    def _read(self, operation: ReadOperation) -> asyncio.Future[Any]:
        return self.opened().reading.submit(operation)

    def _release(self, claim: Claim) -> asyncio.Future[Any]:
        return self._write(Release(claim.record.id, claim.token))

    def _now(self) -> int | None:
        """Return the time of the tests' clock, or `None` to use the clock of the database."""
        return None if self._clock is None else int(self._clock() * 1000)
