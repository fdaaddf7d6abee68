"""The SQLite store: hands each operation to the thread that runs it.

One thread writes and shares commits between callers, one reads, and one polls for the commits of other
processes. This module owns the threads and the watchers. It knows neither SQL nor what entries mean.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec

from antiphon import wall_clock
from antiphon.errors import StoreUnavailable
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
from antiphon.store.outcomes import status_of
from antiphon.store.rules import Row
from antiphon.store.sqlite.batch import Batch, Operation
from antiphon.store.sqlite.batch_thread import BatchThread
from antiphon.store.sqlite.change_poller import ChangePoller
from antiphon.store.sqlite.clock import MachineClock, StoreClock, find_machine_clock
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.free_space import compact, release_free_pages
from antiphon.store.sqlite.lease_keeper import SQLiteLeaseKeeper
from antiphon.store.sqlite.loop_callbacks import callbacks_on_loop
from antiphon.store.sqlite.migrations import prepare
from antiphon.store.sqlite.reader import Reader, ReadOperation
from antiphon.store.sqlite.threads import Threads
from antiphon.store.sqlite.writer import Writer
from antiphon.store.tally_rules import count_of, has_tally, hour_of
from antiphon.store.unreadable import UnreadableRecords
from antiphon.store.watchers import Watchers

__all__ = ["SQLiteStore"]

_WRITER_IDLE_TURNS = 8
"""Turns of the loop for which the writer waits for more operations: a commit costs more than the turns."""
_PROBE_BYTES = 40_960
"""What a probe writes: about as much as a task does, because a disk may have space for a smaller write."""
_PROBE_KEPT_MILLISECONDS = 60_000
"""How long the row of the last probe is kept after it."""


class SQLiteStore:
    """Tasks in one SQLite file, which any number of processes on one machine may share.

    `busy_timeout` is how many seconds to wait while another process writes. `poll_interval` is how many
    seconds pass between two polls for the commits of other processes, while there are watchers. `max_queued`
    is how many operations may be queued, and `max_bytes` how large the file may get. A store belongs to the
    event loop that opened it. For tests, `clock` replaces the wall clock, and `machine_clock` the clock of
    leases; leases go by `clock` if only that is given.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] | None = None,
        machine_clock: MachineClock | None = None,
        busy_timeout: float = 10.0,
        poll_interval: float = 0.015,
        max_queued: int = 20_000,
        max_bytes: int | None = None,
    ) -> None:
        self._database = Database(os.path.abspath(path), busy_timeout, max_bytes)
        machine = find_machine_clock() if clock is None and machine_clock is None else machine_clock
        self._clock = StoreClock(clock or wall_clock.now, machine)
        self._poll_interval = poll_interval
        self._max_queued = max_queued
        self._watchers = Watchers(self._set_idle)
        self._threads: Threads | None = None
        self.commit_stats = CommitStats()
        """The commits of this store since it was created."""

    @property
    def commits(self) -> int:
        """The number of transactions that this store has committed since it was created."""
        return self.commit_stats.commits

    @property
    def pending(self) -> int:
        """The number of operations that were started and are not done yet."""
        return 0 if self._threads is None else self._threads.pending

    async def open(self) -> None:
        if self._threads is not None:
            return
        unreadable = UnreadableRecords(self._database.path)
        writer = Writer(self._database, self._clock, self.commit_stats, unreadable)
        reader = Reader(self._database, self._clock, unreadable)
        poller = ChangePoller(
            self._database, writer.origin, self._poll_interval, *callbacks_on_loop(self._watchers)
        )
        try:
            await asyncio.to_thread(self._prepare, poller)
        except (sqlite3.Error, OSError) as error:
            poller.close()
            raise self._database.explain(error, "opened") from error
        writing = BatchThread(
            "antiphon-store-writer",
            writer.run,
            notify=self._watchers.notify,
            max_batch=MAX_BATCH_OPERATIONS,
            max_queued=self._max_queued,
            idle_turns=_WRITER_IDLE_TURNS,
        )
        reading = BatchThread(
            "antiphon-store-reader",
            reader.run,
            max_batch=MAX_BATCH_OPERATIONS,
            max_queued=self._max_queued,
        )
        self._threads = Threads(writer, reader, poller, writing, reading)

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is None:
            return
        await threads.writing.close()
        await threads.reading.close()
        await asyncio.to_thread(threads.close_connections)
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
        queue = _queue_of(row) if worker is None else None
        claimed: tuple[int, int] | None = await self.opened().writing.submit(
            Operation(lambda batch: batch.create(row, encoded, worker, length), (row.id,), queue=queue)
        )
        return None if claimed is None else Claim(rules.created_record(record, len(encoded)), *claimed)

    async def restore(self, record: Record, entries: Sequence[Entry], *, token: int = 0) -> bool:
        row, encoded = rules.restored_row(record, entries, token), rules.encode_restored(entries)
        is_new: bool = await self.opened().writing.submit(
            Operation(lambda batch: batch.restore(row, encoded), (row.id,), queue=_queue_of(row))
        )
        return is_new

    async def extend(
        self, record: Record, entries: Sequence[Entry], *, token: int, expect: int, expect_token: int
    ) -> bool:
        row, encoded = rules.restored_row(record, entries, token), rules.encode_restored(entries)
        is_extended: bool = await self.opened().writing.submit(
            Operation(lambda batch: batch.extend(row, encoded, expect, expect_token), (row.id,))
        )
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
        status = status_of(rules.check_phase(phase), head)
        rules.check_expires(expires)
        rules.check_expires(unwind_by)
        wakes, encoded_tags = rules.encode_waits(phase, wakes, tags)
        version: int = await self._write(
            lambda batch: batch.append(
                id,
                encoded,
                expect,
                phase,
                text,
                token,
                expires,
                unwind_by,
                wakes,
                encoded_tags,
                before,
                status,
            ),
            (id,),
        )
        return version

    async def get(self, id: str) -> Record | None:
        record: Record | None = await self.opened().reading.submit(ReadOperation(id=id))
        return record

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        entries: Sequence[Entry] = await self._read(
            lambda reader: reader.read(id, max(after, 0), max(limit, 0))
        )
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
        wanted = parse_list(
            principal, cursor=cursor, limit=limit, server=server, filter=filter, oldest_first=oldest_first
        )
        page: Page = await self._read(lambda reader: reader.page(wanted))
        return page

    async def tallies(self, *, server: str | None = None) -> Tallies:
        servers = rules.servers_of(server)
        tallies: Tallies = await self._read(lambda reader: reader.tallies(servers))
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
        found: int = await self._read(lambda reader: reader.count_listed(wanted))
        return Count(min(found, most), is_exact=found <= most)

    async def hourly_tallies(self, *, since: int, server: str | None = None) -> Sequence[HourlyTally]:
        first, servers = hour_of(rules.check_timestamp(since)), rules.servers_of(server)
        tallies: Sequence[HourlyTally] = await self._read(
            lambda reader: reader.hourly_tallies(first, servers)
        )
        return tallies

    async def leases(self) -> Sequence[Lease]:
        leases: Sequence[Lease] = await self._read(lambda reader: reader.leases())
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
        length, names = rules.lease_milliseconds(lease), None if tools is None else frozenset(tools)
        servers = rules.servers_of(server)
        claiming = self._search(lambda batch: batch.claim(worker, length, limit, names, servers))
        return await wait_for_claims(claiming, self._release)

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        pairs, length = tuple(claims), rules.lease_milliseconds(lease)
        held: set[str] = await self._write(
            lambda batch: batch.renew(pairs, length), tuple(id for id, _ in pairs)
        )
        return held

    def lease_keeper(self) -> SQLiteLeaseKeeper:
        self.opened()
        return SQLiteLeaseKeeper(self._database, self._clock)

    async def release(self, id: str, token: int, *, delay: float = 0.0, requeue: bool = False) -> None:
        length = rules.lease_milliseconds(delay, kind="delay")
        await self._write(lambda batch: batch.release(id, token, length, requeue), (id,))

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        records: Sequence[Record] = await run_in_portions(
            lambda portion: self._search(partial(Batch.expire, limit=portion)), limit, MAX_EXPIRED_TASKS
        )
        try:
            if await self._read(lambda reader: reader.has_much_free_space()):
                await self._in_thread(release_free_pages)
        except StoreUnavailable:  # the tasks are deleted, and the next call tries again to release the space
            pass
        return records

    async def compact(self) -> None:
        """Rewrite the file without free space. Other processes cannot write meanwhile."""
        self.opened()
        await self._in_thread(compact)

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        number, servers = max(limit, 0), rules.servers_of(server)
        records: Sequence[Record] = await self._read(lambda reader: reader.overdue(number, servers))
        return records

    async def wake(
        self, entry: tuple[str, Any], *, limit: int = 1000, server: str | None = None
    ) -> Sequence[str]:
        (encoded,), servers = rules.encode_entries([entry]), rules.servers_of(server)
        # Workers call this often and rarely find a task, so most calls only read.
        if not await self._read(lambda reader: reader.has_due_task(servers)):
            return []
        ids: Sequence[str] = await run_in_portions(
            lambda portion: self._search(lambda batch: batch.wake(encoded, portion, servers)),
            limit,
            MAX_WOKEN_TASKS,
        )
        return ids

    async def wake_tagged(
        self, tags: Collection[str], entry: tuple[str, Any], *, limit: int = 1000
    ) -> Sequence[str]:
        (encoded,), names = rules.encode_entries([entry]), rules.check_tags(tags)
        ids: Sequence[str] = await run_in_portions(
            lambda portion: self._search(lambda batch: batch.wake_tagged(names, encoded, portion)),
            limit,
            MAX_WOKEN_TASKS,
        )
        return ids

    async def list_tagged(
        self, tags: Collection[str], *, cursor: str | None = None, limit: int = 100
    ) -> Page:
        position, names = decode_cursor(cursor, oldest_first=True), rules.check_tags(tags)
        check_page_limit(limit)
        page: Page = await self._read(lambda reader: reader.tagged_page(names, position, limit))
        return page

    async def add_event(self, topic: str, id: str, data: Any, *, until: int) -> bool:
        text = rules.encode_json(data)
        rules.check_text(topic)
        rules.check_text(id)
        rules.check_timestamp(until)
        is_new: bool = await self._write(lambda batch: batch.add_event(topic, id, text, until))
        return is_new

    async def read_events(self, topic: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        rules.check_text(topic)
        events: Sequence[Event] = await self._read(
            lambda reader: reader.read_events(topic, max(after, 0), max(limit, 0))
        )
        return events

    async def list_events(
        self, *, after: tuple[str, int] | None = None, limit: int = 100
    ) -> Sequence[KeptEvent]:
        events: Sequence[KeptEvent] = await self._read(
            lambda reader: reader.list_events(("", -1) if after is None else after, max(limit, 0))
        )
        return events

    async def restore_event(self, kept: KeptEvent) -> bool:
        values = rules.encode_event(kept)
        is_new: bool = await self._write(lambda batch: batch.restore_event(*values))
        return is_new

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        rules.check_phase(phase)
        servers = rules.servers_of(server)
        count: int = await self._read(lambda reader: reader.count(phase, servers))
        return count

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        rules.check_text(principal)
        rules.check_phase(phase)
        count: int = await self._read(lambda reader: reader.count_of_principal(principal, phase, most))
        return count

    async def count_of_sharer(self, sharer: str, phase: Phase, *, most: int) -> int:
        rules.check_text(sharer)
        rules.check_phase(phase)
        count: int = await self._read(lambda reader: reader.count_of_sharer(sharer, phase, most))
        return count

    async def stored_bytes(self, sharer: str = "", *, server: str | None = None) -> int:
        rules.check_text(sharer)
        servers = rules.servers_of(server)
        size: int = await self._read(lambda reader: reader.stored_bytes(sharer, servers))
        return size

    async def count_queued(self, tool: str, *, most: int, server: str | None = None) -> int:
        rules.check_text(tool)
        servers = rules.servers_of(server)
        count: int = await self._read(lambda reader: reader.count_queued(tool, most, servers))
        return count

    async def oldest_ready(self, *, server: str | None = None) -> int | None:
        servers = rules.servers_of(server)
        since: int | None = await self._read(lambda reader: reader.oldest_ready(servers))
        return since

    async def probe(self) -> None:
        key = f"probe:{self.opened().writer.origin}:".ljust(_PROBE_BYTES, ".")
        await asyncio.to_thread(self._database.file.verify, at_once=True)
        until = self._clock.now() + _PROBE_KEPT_MILLISECONDS
        await self._write(lambda batch: batch.probe(key, until))
        if not await self._read(lambda reader: reader.has_key(key)):
            raise StoreUnavailable(
                f"The store {self._database.path} does not return what was written to it. "
                "Check that no other program writes to the file, then restart the server."
            )

    async def use_once(self, key: str, *, until: int) -> bool:
        rules.check_timestamp(until)
        first: bool = await self._write(lambda batch: batch.use_once(key, until))
        return first

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        self.opened()
        return self._watchers.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self.opened()
        return self._watchers.watch_ready()

    def watch_all(self) -> AbstractAsyncContextManager[Watch]:
        self.opened()
        return self._watchers.watch_all()

    async def publish(self, topic: str, data: Any) -> None:
        text = rules.encode_json(data)
        await self._write(lambda batch: batch.publish(topic, text))
        self._watchers.deliver(topic, msgspec.json.decode(text))

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self.opened()
        return self._watchers.subscribe(topic)

    def opened(self) -> Threads:
        """Return the parts of the open store; raises `StoreUnavailable` if it is not open."""
        if self._threads is None:
            raise unavailable.not_open()
        return self._threads

    async def _in_thread(self, function: Callable[[Database], None]) -> None:
        try:
            await asyncio.to_thread(function, self._database)
        except sqlite3.Error as error:
            raise self._database.explain(error, "written") from error

    def _write(self, run: Callable[[Batch], Any], ids: tuple[str, ...] = ()) -> asyncio.Future[Any]:
        return self.opened().writing.submit(Operation(run, ids))

    def _search(self, run: Callable[[Batch], Any]) -> asyncio.Future[Any]:
        return self.opened().writing.submit(Operation(run, is_search=True))

    def _read(self, run: Callable[[Reader], Any]) -> asyncio.Future[Any]:
        return self.opened().reading.submit(ReadOperation(run))

    def _release(self, claim: Claim) -> asyncio.Future[Any]:
        id = claim.record.id
        return self._write(partial(Batch.release, id=id, token=claim.token), (id,))

    def _prepare(self, poller: ChangePoller) -> None:
        self._database.check()
        prepare(self._database)
        self._clock.agree(self._database)
        poller.start()

    def _set_idle(self, idle: bool) -> None:
        if self._threads is not None:
            self._threads.poller.set_idle(idle)


def _queue_of(row: Row) -> tuple[str, str] | None:
    """Return the server and the principal of a new task that a worker may claim; `None` for other tasks."""
    return (row.server, row.principal) if rules.is_claimable(row) else None
