"""The one that writes: a connection, and one statement for all that came together and is alike.

A statement is a transaction, so that what it did is durable when it returns. It decides by itself what is
refused; why, `rules.py` says afterwards. Knows the event loop's batches, not who waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import msgspec

from antiphon.errors import Stale, StoreError
from antiphon.store import rules
from antiphon.store.commit_stats import CommitStats
from antiphon.store.contract import Claim, Phase
from antiphon.store.postgres.lane import Job
from antiphon.store.postgres.link import Database, Link
from antiphon.store.postgres.statements import FORMAT, keep, kept, record_of, sql, whole
from antiphon.store.rules import Pair, Row
from antiphon.store.watchers import Watchers

__all__ = [
    "Append",
    "Create",
    "Expire",
    "Note",
    "Operation",
    "Release",
    "Renew",
    "Say",
    "Take",
    "Writer",
    "subjects",
]

logger = logging.getLogger("antiphon")

_FORGOTTEN = 5000
"""Entries that are forgotten in one transaction, about: a long log goes at once, but alone."""
_TRIES = 5


class Create(NamedTuple):
    """Begin a log."""

    row: Row
    pairs: Sequence[Pair]
    worker: str | None
    lease: int


class Append(NamedTuple):
    """Add to a log."""

    id: str
    pairs: Sequence[Pair]
    expect: int
    phase: Phase
    head: str
    token: int | None


class Renew(NamedTuple):
    """Hold tasks for longer."""

    claims: Sequence[tuple[str, int]]
    lease: int


class Release(NamedTuple):
    """Let go of a task."""

    id: str
    token: int


class Note(NamedTuple):
    """Note a key."""

    key: str
    until: int


class Say(NamedTuple):
    """Publish something."""

    topic: str
    data: str


class Take(NamedTuple):
    """Claim tasks."""

    worker: str
    lease: int
    limit: int
    tools: Sequence[str] | None


class Expire(NamedTuple):
    """Forget tasks whose time is over."""

    limit: int


Operation: TypeAlias = Create | Append | Renew | Release | Note | Say | Take | Expire
_Jobs: TypeAlias = list[Job[Any]]


def subjects(work: Operation) -> tuple[str, ...]:
    """What no two operations of one statement may be about."""
    if isinstance(work, Append):
        return (f"task {work.id}",)
    if isinstance(work, Create):
        return (f"task {work.row.id}",)
    return (f"key {work.key}",) if isinstance(work, Note) else ()


class Writer:
    """Writes to one database for one process, and tells the watchers of all."""

    def __init__(
        self,
        database: Database,
        origin: str,
        clock: Callable[[], int | None],
        *,
        hub: Watchers,
        meter: CommitStats,
    ) -> None:
        self.link = Link(database)
        self._database = database
        self._origin = origin
        self._slot = int(origin, 16) % 251
        self._clock = clock
        self._hub = hub
        self._meter = meter

    async def run(self, jobs: _Jobs) -> None:
        """Do the operations of a batch; those that look for tasks come last."""
        for kinds, do in (
            ((Create, Append), self._write),
            ((Release,), self._release),
            ((Renew,), self._renew),
            ((Note,), self._note),
            ((Say,), self._say),
            ((Take,), self._take),
            ((Expire,), self._expire),
        ):
            alike = [job for job in jobs if isinstance(job.work, kinds)]
            if alike:
                await self._together(alike, do)

    async def _together(self, jobs: _Jobs, do: Callable[[_Jobs], Any]) -> None:
        """Do what is alike. If PostgreSQL finds fault with it, let only the one fail that is to blame."""
        for turn in range(_TRIES):
            try:
                await do(jobs)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
                if turn + 1 == _TRIES:
                    _fail(jobs, self._database.explain(error, "written"))
            except asyncpg.DataError as error:
                if len(jobs) == 1:
                    _fail(jobs, ValueError(f"The store cannot keep this: {error}."))
                else:
                    for job in jobs:
                        await self._together([job], do)
                return
            except asyncpg.PostgresError as error:
                _fail(jobs, self._database.explain(error, "written"))
                return
            except StoreError as error:
                _fail(jobs, error)
                return
            else:
                return

    async def _write(self, jobs: _Jobs) -> None:
        creates = [job for job in jobs if isinstance(job.work, Create)]
        appends = [job for job in jobs if isinstance(job.work, Append)]
        values = (
            *_columns(_created(job.work) for job in creates),
            *_columns((_appended(job.work) for job in appends), 6),
            *_columns(_entries(creates, appends), 4),
        )
        rows = await self.link.fetch(
            sql("write"), self._clock(), FORMAT, *values, self._slot, self._database.schema, self._origin
        )
        found = {row["id"]: row for row in rows}
        self._count(len(found))
        self._hub.wake([kept(id) for id in found], any(row["free"] for row in rows))
        for job in creates:
            work: Create = job.work
            row = found.get(keep(work.row.id))
            if row is None:
                job.failed(Stale(f"There is a task {work.row.id!r} already: take another id."))
            else:
                job.done(None if work.worker is None else Claim(rules.record_of(work.row), row["token"]))
        refused = []
        for job in appends:
            row = found.get(keep(job.work.id))
            if row is None:
                refused.append(job)
            else:
                job.done(row["version"])
        if refused:
            await self._explain(refused)

    async def _explain(self, jobs: _Jobs) -> None:
        """Say why appends were refused. One that no longer would be is late: somebody was in between."""
        ids = [keep(job.work.id) for job in jobs]
        rows = await self.link.fetch(sql("rows"), ids, self._clock(), again=True)
        found = {row["id"]: row for row in rows}
        for job in jobs:
            work: Append = job.work
            row = found.get(keep(work.id))
            try:
                rules.check(
                    None if row is None else Row(*tuple(row)[:12]),
                    work.id,
                    expect=work.expect,
                    token=work.token,
                    now=0 if row is None else row["now"],
                )
            except StoreError as refusal:
                job.failed(refusal)
            else:
                job.failed(Stale(f"The task {work.id!r} was being written: read it, then decide again."))

    async def _renew(self, jobs: _Jobs) -> None:
        claims = [
            (keep(id), whole(token), job.work.lease)
            for job in jobs
            for id, token in dict(job.work.claims).items()
        ]
        rows = await self.link.fetch(sql("renew"), self._clock(), *_columns(claims, 3), again=True)
        held = {kept(row["id"]) for row in rows}
        self._count(len(held))
        for job in jobs:
            job.done({id for id, _ in job.work.claims if id in held})

    async def _release(self, jobs: _Jobs) -> None:
        claims = [(keep(job.work.id), whole(job.work.token)) for job in jobs]
        rows = await self.link.fetch(
            sql("release"), *_columns(claims, 2), self._database.schema, self._origin, again=True
        )
        self._count(len(jobs))
        self._hub.wake((), rows[0]["free"])
        for job in jobs:
            job.done(None)

    async def _note(self, jobs: _Jobs) -> None:
        keys = [(keep(job.work.key), job.work.until) for job in jobs]
        rows = await self.link.fetch(sql("note"), self._clock(), *_columns(keys, 2))
        noted = {row["key"] for row in rows}
        self._count(len(noted))
        for job in jobs:
            job.done(keep(job.work.key) in noted)

    async def _say(self, jobs: _Jobs) -> None:
        words = [(keep(job.work.topic), job.work.data) for job in jobs]
        await self.link.fetch(sql("publish"), *_columns(words, 2), self._database.schema, self._origin)
        self._count(len(jobs))
        for job in jobs:
            self._hub.tell(job.work.topic, msgspec.json.decode(job.work.data))
            job.done(None)

    async def _take(self, jobs: _Jobs) -> None:
        for job in jobs:
            work: Take = job.work
            values: list[Any] = [self._clock(), keep(work.worker), work.lease, work.limit]
            if work.tools is None:
                rows = await self.link.fetch(sql("claim"), *values)
            else:
                rows = await self.link.fetch(sql("claim_of"), *values, [keep(tool) for tool in work.tools])
            self._count(len(rows))
            rows.sort(key=lambda row: (row["created"], row["key"]))
            job.done([Claim(record_of(row), row["token"]) for row in rows])

    async def _expire(self, jobs: _Jobs) -> None:
        for job in jobs:
            rows = await self.link.fetch(
                sql("expire"),
                self._clock(),
                job.work.limit,
                _FORGOTTEN,
                self._slot,
                self._database.schema,
                self._origin,
            )
            self._count(len(rows))
            if rows:
                await self.link.fetch(sql("forget"), [row["key"] for row in rows], again=True)
            records = [record_of(row) for row in rows]
            self._hub.wake([record.id for record in records], False)
            job.done(records)

    def _count(self, operations: int) -> None:
        if operations:
            self._meter.add(operations)


def _created(work: Create) -> tuple[Any, ...]:
    row = work.row
    return (
        keep(row.id),
        keep(row.principal),
        keep(row.tool),
        row.phase,
        row.version,
        row.created,
        row.updated,
        row.expires,
        None if work.worker is None else keep(work.worker),
        work.lease,
        row.head,
    )


def _appended(work: Append) -> tuple[Any, ...]:
    token = None if work.token is None else whole(work.token)
    return keep(work.id), whole(work.expect), len(work.pairs), work.phase, work.head, token


def _entries(creates: _Jobs, appends: _Jobs) -> list[tuple[Any, ...]]:
    logs = [(job.work.row.id, 1, job.work.pairs) for job in creates]
    logs += [(job.work.id, job.work.expect + 1, job.work.pairs) for job in appends]
    return [
        (keep(id), whole(number), keep(kind), data)
        for id, first, pairs in logs
        for number, (kind, data) in enumerate(pairs, first)
    ]


def _columns(rows: Any, width: int = 11) -> list[list[Any]]:
    """Rows as the arrays that a statement takes."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]


def _fail(jobs: _Jobs, error: Exception) -> None:
    for job in jobs:
        job.failed(error)
