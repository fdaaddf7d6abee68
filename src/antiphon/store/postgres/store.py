"""The PostgreSQL store: what a caller asks for, given to the one that does it.

One connection writes and shares commits between callers, some read, one listens for what other processes
do. This module owns them and the watchers. It knows neither SQL nor what entries mean.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from antiphon.errors import StoreUnavailable
from antiphon.store import rules
from antiphon.store.commit_stats import CommitStats
from antiphon.store.contract import Claim, Entry, Page, Phase, Record, Watch
from antiphon.store.postgres.feed import Feed
from antiphon.store.postgres.lane import Lane
from antiphon.store.postgres.link import Database
from antiphon.store.postgres.migrations import prepare
from antiphon.store.postgres.reader import Count, Get, List, Oldest, Read, Reader, Reading
from antiphon.store.postgres.statements import keep
from antiphon.store.postgres.writer import (
    Append,
    Create,
    Expire,
    Note,
    Operation,
    Release,
    Renew,
    Say,
    Take,
    Writer,
    subjects,
)
from antiphon.store.watchers import Watchers

__all__ = ["PostgresStore"]

_BATCH = 512
"""Operations in one statement, at most."""
_SWEEP = 100
"""Tasks forgotten in one transaction, at most, so that others need not wait long for their turn."""
_READERS = 2


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an open store consists of."""

    writer: Writer
    reader: Reader
    feed: Feed
    writing: Lane[Operation]
    reading: Lane[Reading]


class PostgresStore:
    """Tasks in a PostgreSQL database, which any number of processes on any number of machines may share.

    The time is that of the database, so that nobody's clock matters; `clock` is for tests. `patience` is
    how long a connection or a statement may take, in seconds; `poll_interval` how long a lost notice may
    cost; `max_waiting` how many operations may wait. Belongs to the event loop that opened it.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        patience: float = 10.0,
        poll_interval: float = 1.0,
        max_waiting: int = 20_000,
    ) -> None:
        self._database = Database.of(url, patience)
        self._clock = clock
        self._poll_interval = poll_interval
        self._max_waiting = max_waiting
        self._hub = Watchers()
        self._parts: _Parts | None = None
        self._statements = 0
        self.meter = CommitStats()
        """What this store has committed since it was made."""

    @property
    def commits(self) -> int:
        """How many transactions this store has committed since it was made."""
        return self.meter.commits

    @property
    def statements(self) -> int:
        """How many statements this store has sent since it was made."""
        return self._statements + (_sent(self._parts) if self._parts else 0)

    async def open(self) -> None:
        if self._parts is not None:
            return
        await prepare(self._database)
        origin = secrets.token_hex(8)
        writer = Writer(self._database, origin, self._now, hub=self._hub, meter=self.meter)
        reader = Reader(self._database, self._now, _READERS)
        feed = Feed(self._database, origin, self._hub, self._poll_interval)
        await feed.start()
        writing = Lane(writer.run, batch=_BATCH, bound=self._max_waiting, subjects=subjects)
        reading = Lane(reader.run, batch=_BATCH, bound=self._max_waiting, width=_READERS)
        self._parts = _Parts(writer, reader, feed, writing, reading)

    async def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        await parts.writing.close()
        await parts.reading.close()
        self._statements += _sent(parts)
        await parts.feed.close()
        await parts.reader.close()
        await parts.writer.link.close()
        self._hub.end()

    async def create(
        self,
        record: Record,
        entries: Sequence[tuple[str, Any]],
        *,
        worker: str | None = None,
        lease: float = 0.0,
    ) -> Claim | None:
        pairs, length = rules.to_pairs(entries), rules.span(lease)
        row = rules.begin(record, len(pairs), held=worker is not None)
        claim: Claim | None = await self._write(Create(row, pairs, worker, length))
        return claim

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
        pairs, text = rules.to_pairs(entries), rules.encode(head)
        rules.known_phase(phase)
        keep(id)
        version: int = await self._write(Append(id, pairs, expect, phase, text, token))
        return version

    async def get(self, id: str) -> Record | None:
        keep(id)
        record: Record | None = await self._read(Get(id))
        return record

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        keep(id)
        entries: Sequence[Entry] = await self._read(Read(id, max(after, 0), max(limit, 0)))
        return entries

    async def list(self, principal: str | None, *, cursor: str | None = None, limit: int = 100) -> Page:
        place = rules.open_cursor(cursor)
        rules.some(limit)
        page: Page = await self._read(List(principal, place, limit))
        return page

    async def claim(
        self, worker: str, *, lease: float, limit: int, tools: Collection[str] | None = None
    ) -> Sequence[Claim]:
        length, names = rules.span(lease), None if tools is None else sorted(set(tools))
        if limit < 1:
            return []
        future = self._write(Take(worker, length, limit, names))
        try:
            claims: Sequence[Claim] = await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._give_back)
            raise
        return claims

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        length = rules.span(lease)
        held: set[str] = await self._write(Renew(tuple(claims), length))
        return held

    async def release(self, id: str, token: int) -> None:
        await self._write(Release(id, token))

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        gone: tuple[Record, ...] = ()
        while len(gone) < limit:
            records = await self._write(Expire(min(limit - len(gone), _SWEEP)))
            if not records:
                break
            gone += tuple(records)
        return gone

    async def count(self, phase: Phase) -> int:
        count: int = await self._read(Count(rules.known_phase(phase)))
        return count

    async def oldest(self) -> int | None:
        since: int | None = await self._read(Oldest())
        return since

    async def use_once(self, key: str, *, until: int) -> bool:
        keep(key)
        first: bool = await self._write(Note(key, rules.moment(until)))
        return first

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        self._open().feed.know(id)
        return self._hub.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self._open()
        return self._hub.watch_ready()

    async def publish(self, topic: str, data: Any) -> None:
        keep(topic)
        await self._write(Say(topic, rules.encode(data)))

    def hear(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self._open()
        return self._hub.hear(topic)

    def _open(self) -> _Parts:
        if self._parts is None:
            raise StoreUnavailable("The store is not open: call open() first.")
        return self._parts

    def _write(self, operation: Operation) -> asyncio.Future[Any]:
        return self._open().writing.submit(operation)

    def _read(self, reading: Reading) -> asyncio.Future[Any]:
        return self._open().reading.submit(reading)

    def _now(self) -> int | None:
        """The time that statements are given: none, but in tests."""
        return None if self._clock is None else int(self._clock() * 1000)

    def _give_back(self, claimed: asyncio.Future[Any]) -> None:
        """Let go of what was claimed for a caller who has left meanwhile."""
        if self._parts is None or claimed.cancelled() or claimed.exception():
            return
        for claim in claimed.result():
            try:
                released = self._write(Release(claim.record.id, claim.token))
            except StoreUnavailable:
                return  # the lease ends by itself
            released.add_done_callback(lambda future: future.cancelled() or future.exception())


def _sent(parts: _Parts) -> int:
    return parts.writer.link.statements + parts.reader.statements + parts.feed.statements
