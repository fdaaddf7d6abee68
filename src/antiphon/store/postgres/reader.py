"""Reads batches of operations. Records and logs that are requested together are looked up together.

Each read sees all commits before it, of every process. A read may safely run twice, so a lost connection is
replaced without an error for the caller. The reader does not know the callers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import msgspec

from antiphon.errors import StoreError, StoreUnavailable
from antiphon.store import rules
from antiphon.store.contract import Entry, Page, Phase, Record
from antiphon.store.postgres.batcher import Job
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.statements import (
    check_format,
    escape_text,
    escape_texts,
    record_of,
    sql,
    unescape_text,
)
from antiphon.store.unreadable import UnreadableRecords

__all__ = [
    "CountOfPrincipal",
    "CountTasks",
    "GetOldestReady",
    "GetOverdue",
    "GetRecord",
    "ListRecords",
    "ReadLog",
    "ReadOperation",
    "Reader",
]


class GetRecord(NamedTuple):
    """Gets a task's record."""

    id: str


class ReadLog(NamedTuple):
    """Reads entries of a log."""

    id: str
    after: int
    limit: int


class ListRecords(NamedTuple):
    """Gets a page of records."""

    principal: str | None
    position: tuple[int, int]
    limit: int
    servers: Sequence[str] | None = None


class CountTasks(NamedTuple):
    """Counts the tasks in a phase."""

    phase: Phase
    servers: Sequence[str] | None = None


class CountOfPrincipal(NamedTuple):
    """Counts the tasks of a principal in a phase, up to a limit."""

    principal: str
    phase: Phase
    most: int


class GetOldestReady(NamedTuple):
    """Gets the time of the next task to be claimed."""

    servers: Sequence[str] | None = None


class GetOverdue(NamedTuple):
    """Gets tasks that have not ended although their time has passed."""

    limit: int
    servers: Sequence[str] | None = None


ReadOperation: TypeAlias = (
    GetRecord | ReadLog | ListRecords | CountTasks | CountOfPrincipal | GetOldestReady | GetOverdue
)


class Reader:
    """The connections that read, one for each batch that runs at a time."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], int | None],
        connections: int,
        unreadable: UnreadableRecords,
    ) -> None:
        self._database = database
        self._unreadable = unreadable
        self._clock = clock
        self._free = [ReconnectingConnection(database) for _ in range(connections)]
        self._all = tuple(self._free)
        self._handlers: tuple[tuple[type[Any], Callable[..., Any]], ...] = (
            (GetRecord, self._get),
            (ReadLog, self._read),
            (ListRecords, self._list),
            (CountTasks, self._count),
            (CountOfPrincipal, self._count_of_principal),
            (GetOldestReady, self._get_oldest_ready),
            (GetOverdue, self._get_overdue),
        )

    @property
    def statements(self) -> int:
        """The number of statements that were sent."""
        return sum(connection.statements for connection in self._all)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._all:
            await connection.close()

    async def run(self, jobs: list[Job[Any]]) -> None:
        """Run a batch, and end each of its jobs."""
        async with self._free_connection() as connection:
            for kind, handler in self._handlers:
                matching = [job for job in jobs if isinstance(job.operation, kind)]
                if not matching:
                    continue
                try:
                    await handler(connection, matching)
                except asyncpg.PostgresError as error:
                    _fail_all(matching, self._database.explain(error, "read"))
                except StoreError as error:
                    _fail_all(matching, error)

    @asynccontextmanager
    async def _free_connection(self) -> Any:
        # The connection used last is taken first, so that further ones are only made while it is busy.
        connection = self._free.pop()
        try:
            yield connection
        finally:
            self._free.append(connection)

    async def _get(self, connection: ReconnectingConnection, jobs: list[Job[GetRecord]]) -> None:
        ids = list({escape_text(job.operation.id) for job in jobs})
        rows = await connection.fetch(sql("get"), ids, self._clock(), retry=True)
        found = {unescape_text(row["id"]): row for row in rows}
        for job in jobs:
            _finish(job, self._to_record, found.get(job.operation.id))

    async def _read(self, connection: ReconnectingConnection, jobs: list[Job[ReadLog]]) -> None:
        rows = await connection.fetch(
            sql("read"),
            [escape_text(job.operation.id) for job in jobs],
            [job.operation.after for job in jobs],
            [job.operation.limit for job in jobs],
            self._clock(),
            retry=True,
        )
        logs: dict[int, list[Any]] = {}
        for row in rows:
            logs.setdefault(row["place"], []).append(row)
        for place, job in enumerate(jobs, 1):
            _finish(job, _to_entries, logs.get(place, []))

    async def _list(self, connection: ReconnectingConnection, jobs: list[Job[ListRecords]]) -> None:
        for job in jobs:
            operation = job.operation
            values: list[Any] = [*operation.position, operation.limit + 1, self._clock()]
            servers = escape_texts(operation.servers)
            if operation.principal is None:
                rows = await connection.fetch(sql("list_all"), *values, servers, retry=True)
            else:
                values += [escape_text(operation.principal), servers]
                rows = await connection.fetch(sql("list_by_principal"), *values, retry=True)
            _finish(job, self._to_page, rows, operation.limit)

    async def _count(self, connection: ReconnectingConnection, jobs: list[Job[CountTasks]]) -> None:
        for job in jobs:
            phase, servers = job.operation.phase, escape_texts(job.operation.servers)
            if servers is None:
                rows = await connection.fetch(sql("count"), phase, retry=True)
            elif phase == "ready":
                rows = await connection.fetch(sql("count_ready_of_servers"), servers, retry=True)
            else:
                rows = await connection.fetch(sql("count_of_servers"), phase, servers, retry=True)
            job.succeed(rows[0][0])

    async def _count_of_principal(
        self, connection: ReconnectingConnection, jobs: list[Job[CountOfPrincipal]]
    ) -> None:
        for job in jobs:
            principal, phase, most = job.operation
            values = (escape_text(principal), phase, most)
            rows = await connection.fetch(sql("count_of_principal"), *values, retry=True)
            job.succeed(rows[0][0])

    async def _get_oldest_ready(
        self, connection: ReconnectingConnection, jobs: list[Job[GetOldestReady]]
    ) -> None:
        for job in jobs:
            servers = escape_texts(job.operation.servers)
            if servers is None:
                rows = await connection.fetch(sql("oldest_ready"), retry=True)
            else:
                rows = await connection.fetch(sql("oldest_ready_of_servers"), servers, retry=True)
            job.succeed(rows[0][0] if rows else None)

    async def _get_overdue(self, connection: ReconnectingConnection, jobs: list[Job[GetOverdue]]) -> None:
        for job in jobs:
            values, servers = (self._clock(), job.operation.limit), escape_texts(job.operation.servers)
            if servers is None:
                rows = await connection.fetch(sql("overdue"), *values, retry=True)
            else:
                rows = await connection.fetch(sql("overdue_of_servers"), *values, servers, retry=True)
            _finish(job, self._to_records, rows)

    def _to_record(self, row: Any) -> Record | None:
        if row is None:
            return None
        record = self._unreadable.attempt(row["id"], record_of, row)
        if record is None:
            raise self._unreadable.error(unescape_text(row["id"]))
        return record

    def _to_records(self, rows: list[Any]) -> list[Record]:
        records = (self._unreadable.attempt(row["id"], record_of, row) for row in rows)
        return [record for record in records if record is not None]

    def _to_page(self, rows: list[Any], limit: int) -> Page:
        records = tuple(self._to_records(rows[:limit]))
        last = rows[limit - 1] if len(rows) > limit else None
        return Page(records, None if last is None else rules.encode_cursor(last["created"], last["key"]))


def _to_entries(rows: list[Any]) -> list[Entry]:
    for row in rows:
        check_format(row["format"])
    return [
        Entry(row["number"], unescape_text(row["kind"]), row["at"], msgspec.json.decode(row["data"]))
        for row in rows
    ]


def _finish(job: Job[Any], convert: Callable[..., Any], *rows: Any) -> None:
    """End a job with its converted rows. Rows that cannot be converted fail this job only."""
    try:
        job.succeed(convert(*rows))
    except StoreError as error:
        job.fail(error)
    except msgspec.MsgspecError as error:
        job.fail(
            StoreUnavailable(
                f"The log of a task cannot be read: an entry is damaged: {error}. Restore it from a backup."
            )
        )


def _fail_all(jobs: list[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.fail(error)
