"""The one that reads. Records and logs that are asked for at the same time are looked up together.

Each read sees what was committed before it began, by whatever process. It may be done twice, so a
connection that was lost is replaced without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import msgspec

from antiphon.errors import StoreError
from antiphon.store import rules
from antiphon.store.contract import Entry, Page, Phase, Record
from antiphon.store.postgres.lane import Job
from antiphon.store.postgres.link import Database, Link
from antiphon.store.postgres.statements import keep, kept, known, record_of, sql

__all__ = ["Count", "Get", "List", "Oldest", "Read", "Reader", "Reading"]


class Get(NamedTuple):
    """A record."""

    id: str


class Read(NamedTuple):
    """Some of a log."""

    id: str
    after: int
    limit: int


class List(NamedTuple):
    """A page of records."""

    principal: str | None
    place: tuple[int, int]
    limit: int


class Count(NamedTuple):
    """How many tasks are in a phase."""

    phase: Phase


class Oldest(NamedTuple):
    """Since when the task waits that is next."""


Reading = Get | Read | List | Count | Oldest


class Reader:
    """Reads one database for one process, on as many connections as there are batches at a time."""

    def __init__(self, database: Database, clock: Callable[[], int | None], width: int) -> None:
        self._database = database
        self._clock = clock
        self._free = [Link(database) for _ in range(width)]
        self._all = tuple(self._free)
        self._kinds: tuple[tuple[type[Any], Callable[..., Any]], ...] = (
            (Get, self._get),
            (Read, self._read),
            (List, self._list),
            (Count, self._count),
            (Oldest, self._oldest),
        )

    @property
    def statements(self) -> int:
        """How many statements were sent."""
        return sum(link.statements for link in self._all)

    async def close(self) -> None:
        """Let go of the connections."""
        for link in self._all:
            await link.close()

    async def run(self, jobs: list[Job[Any]]) -> None:
        """Read all of it."""
        async with self._link() as link:
            for kind, do in self._kinds:
                alike = [job for job in jobs if isinstance(job.work, kind)]
                if not alike:
                    continue
                try:
                    await do(link, alike)
                except asyncpg.PostgresError as error:
                    _fail(alike, self._database.explain(error, "read"))
                except StoreError as error:
                    _fail(alike, error)

    @asynccontextmanager
    async def _link(self) -> Any:
        # The one that is connected comes first; the others are only there for when it is busy.
        link = self._free.pop()
        try:
            yield link
        finally:
            self._free.append(link)

    async def _get(self, link: Link, jobs: list[Job[Get]]) -> None:
        ids = list({keep(job.work.id) for job in jobs})
        rows = await link.fetch(sql("get"), ids, self._clock(), again=True)
        found = {kept(row["id"]): row for row in rows}
        for job in jobs:
            row = found.get(job.work.id)
            _give(job, _optional_record, row)

    async def _read(self, link: Link, jobs: list[Job[Read]]) -> None:
        rows = await link.fetch(
            sql("read"),
            [keep(job.work.id) for job in jobs],
            [job.work.after for job in jobs],
            [job.work.limit for job in jobs],
            self._clock(),
            again=True,
        )
        logs: dict[int, list[Any]] = {}
        for row in rows:
            logs.setdefault(row["place"], []).append(row)
        for place, job in enumerate(jobs, 1):
            _give(job, _log, logs.get(place, []))

    async def _list(self, link: Link, jobs: list[Job[List]]) -> None:
        for job in jobs:
            work = job.work
            values: list[Any] = [*work.place, work.limit + 1, self._clock()]
            if work.principal is None:
                rows = await link.fetch(sql("page"), *values, again=True)
            else:
                rows = await link.fetch(sql("page_of"), *values, keep(work.principal), again=True)
            _give(job, _page, rows, work.limit)

    async def _count(self, link: Link, jobs: list[Job[Count]]) -> None:
        for job in jobs:
            rows = await link.fetch(sql("count"), job.work.phase, again=True)
            job.done(rows[0][0])

    async def _oldest(self, link: Link, jobs: list[Job[Oldest]]) -> None:
        rows = await link.fetch(sql("oldest"), self._clock(), again=True)
        for job in jobs:
            job.done(rows[0][0] if rows else None)


def _optional_record(row: Any) -> Record | None:
    return None if row is None else record_of(row)


def _log(rows: list[Any]) -> list[Entry]:
    for row in rows:
        known(row["format"])
    return [
        Entry(row["number"], kept(row["kind"]), row["at"], msgspec.json.decode(row["data"])) for row in rows
    ]


def _page(rows: list[Any], most: int) -> Page:
    records = tuple(record_of(row) for row in rows[:most])
    last = rows[most - 1] if len(rows) > most else None
    return Page(records, None if last is None else rules.to_cursor(last["created"], last["key"]))


def _give(job: Job[Any], make: Callable[..., Any], *rows: Any) -> None:
    """End one job with what is made of its rows; what cannot be understood is its own misfortune."""
    try:
        job.done(make(*rows))
    except StoreError as error:
        job.failed(error)


def _fail(jobs: list[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.failed(error)
