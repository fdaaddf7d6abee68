"""The SQLite store: what a caller asks for, given to the thread that does it.

One thread writes and shares commits between callers, one reads, one notices other processes. This module
owns the three and the watchers. It knows neither SQL nor what entries mean.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store import rules
from antiphon.store.commit_stats import CommitStats
from antiphon.store.contract import Claim, Entry, Page, Phase, Record, Watch
from antiphon.store.sqlite.batch import Batch, Operation
from antiphon.store.sqlite.connection import Database
from antiphon.store.sqlite.feed import Feed
from antiphon.store.sqlite.lane import Lane
from antiphon.store.sqlite.migrations import prepare
from antiphon.store.sqlite.reader import Reader, Reading
from antiphon.store.sqlite.writer import Writer
from antiphon.store.watchers import Watchers

__all__ = ["SQLiteStore"]

_BATCH = 512
"""Operations in one transaction, and reads in one go, at most."""
_SWEEP = 100
"""Tasks forgotten in one transaction, at most, so that others need not wait long for their turn."""


@dataclass(frozen=True, slots=True)
class _Threads:
    """What an open store consists of."""

    writer: Writer
    reader: Reader
    feed: Feed
    writing: Lane[Operation]
    reading: Lane[Reading]


class SQLiteStore:
    """Tasks in one SQLite file, which any number of processes on one machine may share.

    `busy_timeout` is how long to wait for another process that writes, in seconds; `poll_interval` how
    often to look for what others wrote, while somebody watches; `max_waiting` how many operations may
    wait; `max_bytes` how large the file may get. Belongs to the event loop that opened it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        busy_timeout: float = 10.0,
        poll_interval: float = 0.015,
        max_waiting: int = 20_000,
        max_bytes: int | None = None,
    ) -> None:
        self._database = Database(os.path.abspath(path), busy_timeout, max_bytes)
        self._clock = clock
        self._poll_interval = poll_interval
        self._max_waiting = max_waiting
        self._hub = Watchers(self._idle)
        self._threads: _Threads | None = None
        self.meter = CommitStats()
        """What this store has committed since it was made."""

    @property
    def commits(self) -> int:
        """How many transactions this store has committed since it was made."""
        return self.meter.commits

    async def open(self) -> None:
        if self._threads is not None:
            return
        writer, reader = Writer(self._database, self._clock, self.meter), Reader(self._database, self._clock)
        feed = Feed(self._database, writer.origin, self._poll_interval, *self._reporters())
        try:
            await asyncio.to_thread(self._prepare, feed)
        except (sqlite3.Error, OSError) as error:
            feed.close()
            raise self._database.explain(error, "opened") from error
        writing = Lane(
            "antiphon-store-writer", writer.run, told=self._hub.wake, batch=_BATCH, bound=self._max_waiting
        )
        reading = Lane("antiphon-store-reader", reader.run, batch=_BATCH, bound=self._max_waiting)
        self._threads = _Threads(writer, reader, feed, writing, reading)

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is None:
            return
        await threads.writing.close()
        await threads.reading.close()
        await asyncio.to_thread(_let_go, threads)
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
        claim: Claim | None = await self._write(
            lambda batch: batch.create(row, pairs, worker, length), (row.id,)
        )
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
        version: int = await self._write(
            lambda batch: batch.append(id, pairs, expect, phase, text, token), (id,)
        )
        return version

    async def get(self, id: str) -> Record | None:
        record: Record | None = await self._lanes().reading.submit(Reading(id=id))
        return record

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        entries: Sequence[Entry] = await self._read(
            lambda reader: reader.read(id, max(after, 0), max(limit, 0))
        )
        return entries

    async def list(self, principal: str | None, *, cursor: str | None = None, limit: int = 100) -> Page:
        place = rules.open_cursor(cursor)
        rules.some(limit)
        page: Page = await self._read(lambda reader: reader.page(principal, place, limit))
        return page

    async def claim(
        self, worker: str, *, lease: float, limit: int, tools: Collection[str] | None = None
    ) -> Sequence[Claim]:
        length, names = rules.span(lease), None if tools is None else tuple(tools)
        future = self._search(lambda batch: batch.claim(worker, length, limit, names))
        try:
            claims: Sequence[Claim] = await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._give_back)
            raise
        return claims

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        pairs, length = tuple(claims), rules.span(lease)
        held: set[str] = await self._write(
            lambda batch: batch.renew(pairs, length), tuple(id for id, _ in pairs)
        )
        return held

    async def release(self, id: str, token: int) -> None:
        await self._write(lambda batch: batch.release(id, token), (id,))

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        gone: tuple[Record, ...] = ()
        while len(gone) < limit:
            portion = min(limit - len(gone), _SWEEP)
            records = await self._search(partial(Batch.expire, limit=portion))
            if not records:
                break
            gone += tuple(records)
        return gone

    async def count(self, phase: Phase) -> int:
        rules.known_phase(phase)
        count: int = await self._read(lambda reader: reader.count(phase))
        return count

    async def oldest(self) -> int | None:
        since: int | None = await self._read(lambda reader: reader.oldest())
        return since

    async def use_once(self, key: str, *, until: int) -> bool:
        rules.moment(until)
        first: bool = await self._write(lambda batch: batch.use_once(key, until))
        return first

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        self._lanes()
        return self._hub.watch(id)

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        self._lanes()
        return self._hub.watch_ready()

    async def publish(self, topic: str, data: Any) -> None:
        text = rules.encode(data)
        await self._write(lambda batch: batch.publish(topic, text))
        self._hub.tell(topic, msgspec.json.decode(text))

    def hear(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self._lanes()
        return self._hub.hear(topic)

    def _lanes(self) -> _Threads:
        if self._threads is None:
            raise StoreUnavailable("The store is not open: call open() first.")
        return self._threads

    def _write(self, run: Callable[[Batch], Any], ids: tuple[str, ...] = ()) -> asyncio.Future[Any]:
        return self._lanes().writing.submit(Operation(run, ids))

    def _search(self, run: Callable[[Batch], Any]) -> asyncio.Future[Any]:
        return self._lanes().writing.submit(Operation(run, queries=True))

    def _read(self, run: Callable[[Reader], Any]) -> asyncio.Future[Any]:
        return self._lanes().reading.submit(Reading(run))

    def _give_back(self, claimed: asyncio.Future[Any]) -> None:
        """Let go of what was claimed for a caller who has left meanwhile."""
        if self._threads is None or claimed.cancelled() or claimed.exception():
            return
        for claim in claimed.result():
            id = claim.record.id
            try:
                released = self._write(partial(Batch.release, id=id, token=claim.token), (id,))
            except StoreUnavailable:
                return  # the lease ends by itself
            released.add_done_callback(lambda future: future.cancelled() or future.exception())

    def _prepare(self, feed: Feed) -> None:
        self._database.check()
        prepare(self._database)
        feed.start()

    def _idle(self, idle: bool) -> None:
        if self._threads is not None:
            self._threads.feed.idle(idle)

    def _reporters(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """What the feed calls from its thread."""
        loop = asyncio.get_running_loop()

        def wake(touched: Collection[str] | None, ready: bool) -> None:
            if touched is None:
                self._hub.wake_all()
            else:
                self._hub.wake(touched, ready)

        def tell(messages: Sequence[tuple[str, str]]) -> None:
            for topic, data in messages:
                self._hub.tell(topic, msgspec.json.decode(data))

        def later(function: Callable[..., None], *arguments: Any) -> None:
            try:
                loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                pass

        return partial(later, wake), partial(later, tell)


def _let_go(threads: _Threads) -> None:
    threads.feed.close()
    threads.reader.close()
    threads.writer.close()
