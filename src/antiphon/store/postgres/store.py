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
from antiphon.store.contract import UNSET, Claim, Entry, Page, Phase, Record, UnsetType, Watch
from antiphon.store.database_operations import MAX_BATCH_OPERATIONS, expire_in_portions, wait_for_claims
from antiphon.store.postgres.batcher import Batcher
from antiphon.store.postgres.change_listener import ChangeListener
from antiphon.store.postgres.claimer import ClaimTasks
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.lease_keeper import PostgresLeaseKeeper
from antiphon.store.postgres.migrations import prepare
from antiphon.store.postgres.reader import (
    CountOfPrincipal,
    CountTasks,
    GetOldestReady,
    GetOverdue,
    GetRecord,
    ListRecords,
    Reader,
    ReadLog,
    ReadOperation,
)
from antiphon.store.postgres.writer import (
    Append,
    Create,
    Expire,
    Probe,
    Publish,
    Release,
    Renew,
    UseOnce,
    WriteOperation,
    Writer,
    conflict_keys,
)
from antiphon.store.unreadable import UnreadableRecords
from antiphon.store.watchers import Watchers

__all__ = ["PostgresStore"]

_READ_CONNECTIONS = 2
"""Connections that read: two, so that a slow read does not hold up the others."""


@dataclass(frozen=True, slots=True)
class _Parts:
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
        self._parts: _Parts | None = None
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
        self._parts = _Parts(writer, reader, listener, writing, reading)

    async def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        await parts.writing.close()
        await parts.reading.close()
        self._statements += parts.statements
        await parts.listener.close()
        await parts.reader.close()
        await parts.writer.connection.close()
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
        token: int | None = await self._write(Create(row, encoded, worker, length))
        return None if token is None else Claim(rules.created_record(record, len(encoded)), token)

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
        encoded, text = rules.encode_entries(entries), rules.encode_json(head)
        rules.check_phase(phase)
        rules.check_text(id)
        rules.check_expires(expires)
        rules.check_expires(unwind_by)
        version: int = await self._write(Append(id, encoded, expect, phase, text, token, expires, unwind_by))
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
    ) -> Page:
        position = rules.decode_cursor(cursor)
        rules.check_page_limit(limit)
        page: Page = await self._read(ListRecords(principal, position, limit, rules.servers_of(server)))
        return page

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
        self._opened()
        return PostgresLeaseKeeper(self._database, self._now)

    async def release(self, id: str, token: int, *, delay: float = 0.0) -> None:
        length = rules.lease_milliseconds(delay, kind="delay")
        await self._write(Release(id, token, length))

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        return await expire_in_portions(lambda portion: self._write(Expire(portion)), limit)

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        records: Sequence[Record] = await self._read(GetOverdue(max(limit, 0), rules.servers_of(server)))
        return records

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        count: int = await self._read(CountTasks(rules.check_phase(phase), rules.servers_of(server)))
        return count

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        rules.check_text(principal)
        operation = CountOfPrincipal(principal, rules.check_phase(phase), most)
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
        self._opened().listener.add_task(id)
        return self._watchers.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self._opened()
        return self._watchers.watch_ready()

    async def publish(self, topic: str, data: Any) -> None:
        rules.check_text(topic)
        await self._write(Publish(topic, rules.encode_json(data)))

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self._opened()
        return self._watchers.subscribe(topic)

    def _opened(self) -> _Parts:
        if self._parts is None:
            raise unavailable.not_open()
        return self._parts

    def _write(self, operation: WriteOperation) -> asyncio.Future[Any]:
        return self._opened().writing.submit(operation)

    def _read(self, operation: ReadOperation) -> asyncio.Future[Any]:
        return self._opened().reading.submit(operation)

    def _release(self, claim: Claim) -> asyncio.Future[Any]:
        return self._write(Release(claim.record.id, claim.token))

    def _now(self) -> int | None:
        """Return the time of the tests' clock, or `None` to use the clock of the database."""
        return None if self._clock is None else int(self._clock() * 1000)
