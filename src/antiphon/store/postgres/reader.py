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
from antiphon.store.contract import (
    Entry,
    Event,
    KeptEvent,
    Page,
    Phase,
    Record,
    TaskFilter,
)
from antiphon.store.list_rules import (
    SearchBy,
    TaskList,
    encode_cursor,
)
from antiphon.store.postgres.batcher import Job
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.statements import (
    check_format,
    count_sql,
    escape_text,
    escape_texts,
    index_key,
    list_sql,
    record_of,
    sql,
    unescape_text,
)
from antiphon.store.postgres.tally_reader import (
    best_search,
    fetch_hourly_tallies,
    fetch_leases,
    fetch_tallies,
)
from antiphon.store.unreadable import UnreadableRecords

__all__ = [
    "CountListed",
    "CountOfPrincipal",
    "CountOfSharer",
    "CountQueued",
    "CountTasks",
    "GetHourlyTallies",
    "GetLeases",
    "GetOldestReady",
    "GetOverdue",
    "GetRecord",
    "GetTallies",
    "ListEvents",
    "ListTagged",
    "ReadEvents",
    "ReadLog",
    "ReadOperation",
    "Reader",
    "list_name",
]


class GetRecord(NamedTuple):
    """Gets a task's record."""

    id: str


class ReadLog(NamedTuple):
    """Reads entries of a log."""

    id: str
    after: int
    limit: int


class CountListed(NamedTuple):
    """Counts the tasks of a list, up to its limit."""

    list: TaskList


class GetTallies(NamedTuple):
    """Gets the numbers of tasks."""

    servers: Sequence[str] | None


class GetHourlyTallies(NamedTuple):
    """Gets the numbers of tasks by hour."""

    since: int
    servers: Sequence[str] | None


class GetLeases(NamedTuple):
    """Gets the workers that hold tasks."""


class CountTasks(NamedTuple):
    """Counts the tasks in a phase."""

    phase: Phase
    servers: Sequence[str] | None = None


class CountOfPrincipal(NamedTuple):
    """Counts the tasks of a principal in a phase, up to a limit."""

    principal: str
    phase: Phase
    most: int


class CountOfSharer(NamedTuple):
    """Counts the tasks of a sharer that wait in a phase, up to a limit."""

    sharer: str
    phase: Phase
    most: int


class StoredBytes(NamedTuple):
    """Gets the bytes of the logs of a sharer, or of all for an empty name."""

    sharer: str
    servers: Sequence[str] | None


class GetOldestReady(NamedTuple):
    """Gets the time of the next task to be claimed."""

    servers: Sequence[str] | None = None


class GetOverdue(NamedTuple):
    """Gets tasks that have not ended although their time has passed."""

    limit: int
    servers: Sequence[str] | None = None


class ListTagged(NamedTuple):
    """Gets a page of the waiting tasks that have one of the tags."""

    tags: Sequence[str]
    position: tuple[int, int]
    limit: int


class ReadEvents(NamedTuple):
    """Reads events of a topic."""

    topic: str
    after: int
    limit: int


class CountQueued(NamedTuple):
    """Counts the claimable tasks of a tool, up to a limit."""

    tool: str
    most: int
    servers: tuple[str, ...] | None


class ListEvents(NamedTuple):
    """Reads events of all topics, after a topic and a number."""

    topic: str
    number: int
    limit: int


ReadOperation: TypeAlias = (
    GetRecord
    | ReadLog
    | TaskList
    | CountListed
    | GetTallies
    | GetHourlyTallies
    | GetLeases
    | ListTagged
    | ReadEvents
    | ListEvents
    | CountTasks
    | CountOfPrincipal
    | CountOfSharer
    | StoredBytes
    | CountQueued
    | GetOldestReady
    | GetOverdue
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
        self._unreadable_events = UnreadableRecords(database.display_url, kind="event")
        self._clock = clock
        self._free = [ReconnectingConnection(database) for _ in range(connections)]
        self._all = tuple(self._free)
        self._handlers: tuple[tuple[type[Any], Callable[..., Any]], ...] = (
            (GetRecord, self._get),
            (ReadLog, self._read),
            (TaskList, self._list),
            (CountListed, self._count_listed),
            (GetTallies, self._get_tallies),
            (GetHourlyTallies, self._get_hourly_tallies),
            (GetLeases, self._get_leases),
            (ListTagged, self._list_tagged),
            (ReadEvents, self._read_events),
            (ListEvents, self._list_events),
            (CountTasks, self._count),
            (CountOfPrincipal, self._count_of_principal),
            (CountOfSharer, self._count_of_sharer),
            (StoredBytes, self._stored_bytes),
            (CountQueued, self._count_queued),
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

    async def _list(self, connection: ReconnectingConnection, jobs: list[Job[TaskList]]) -> None:
        for job in jobs:
            wanted = job.operation
            if (field := await best_search(connection, wanted)) is None:
                job.succeed(Page((), None))
                continue
            statement = list_sql(list_name(field, wanted.filter), oldest_first=wanted.oldest_first)
            values = self.list_values(wanted, wanted.limit + 1)
            rows = await connection.fetch(statement, *values, retry=True)
            _finish(job, self._to_page, rows, wanted.limit, wanted.cursor_after)

    async def _count_listed(self, connection: ReconnectingConnection, jobs: list[Job[CountListed]]) -> None:
        for job in jobs:
            wanted = job.operation.list
            if (field := await best_search(connection, wanted)) is None:
                job.succeed(0)
                continue
            values = self.list_values(wanted, wanted.limit)
            rows = await connection.fetch(count_sql(list_name(field, wanted.filter)), *values, retry=True)
            job.succeed(rows[0][0])

    def list_values(self, wanted: TaskList, limit: int) -> list[Any]:
        """Return the values of a statement that lists."""
        filter = wanted.filter
        return [
            *wanted.position,
            limit,
            self._clock(),
            None if wanted.principal is None else escape_text(wanted.principal),
            escape_texts(wanted.servers),
            None if filter.tool is None else escape_text(filter.tool),
            filter.phase,
            filter.outcome,
            wanted.bound,
        ]

    async def _get_tallies(self, connection: ReconnectingConnection, jobs: list[Job[GetTallies]]) -> None:
        for job in jobs:
            job.succeed(await fetch_tallies(connection, self._clock(), job.operation.servers))

    async def _get_hourly_tallies(
        self, connection: ReconnectingConnection, jobs: list[Job[GetHourlyTallies]]
    ) -> None:
        for job in jobs:
            job.succeed(await fetch_hourly_tallies(connection, *job.operation))

    async def _get_leases(self, connection: ReconnectingConnection, jobs: list[Job[GetLeases]]) -> None:
        leases = await fetch_leases(connection, self._clock())
        for job in jobs:
            job.succeed(leases)

    async def _list_tagged(self, connection: ReconnectingConnection, jobs: list[Job[ListTagged]]) -> None:
        for job in jobs:
            tags, position, limit = job.operation
            values = (*position, limit + 1, list(map(index_key, tags)))
            rows = await connection.fetch(sql("list_tagged"), *values, retry=True)
            _finish(job, self._to_page, rows, limit)

    async def _read_events(self, connection: ReconnectingConnection, jobs: list[Job[ReadEvents]]) -> None:
        for job in jobs:
            topic, after, limit = job.operation
            values = (self._clock(), index_key(topic), after, limit)
            rows = await connection.fetch(sql("read_events"), *values, retry=True)
            _finish(job, self._to_events, rows)

    async def _list_events(self, connection: ReconnectingConnection, jobs: list[Job[ListEvents]]) -> None:
        for job in jobs:
            topic, number, limit = job.operation
            values = (self._clock(), index_key(topic), number, limit)
            rows = await connection.fetch(sql("list_events"), *values, retry=True)
            _finish(job, self._to_kept_events, rows)

    async def _count(self, connection: ReconnectingConnection, jobs: list[Job[CountTasks]]) -> None:
        for job in jobs:
            phase, servers = job.operation.phase, escape_texts(job.operation.servers)
            if servers is None:
                rows = await connection.fetch(sql("count"), phase, retry=True)
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

    async def _count_of_sharer(
        self, connection: ReconnectingConnection, jobs: list[Job[CountOfSharer]]
    ) -> None:
        for job in jobs:
            sharer, phase, most = job.operation
            rows = await connection.fetch(
                sql("count_of_sharer"), escape_text(sharer), phase, most, retry=True
            )
            job.succeed(rows[0][0])

    async def _stored_bytes(self, connection: ReconnectingConnection, jobs: list[Job[StoredBytes]]) -> None:
        for job in jobs:
            sharer, servers = job.operation
            values = (escape_text(sharer), escape_texts(servers))
            rows = await connection.fetch(sql("stored_bytes"), *values, retry=True)
            job.succeed(rows[0][0])

    async def _count_queued(self, connection: ReconnectingConnection, jobs: list[Job[CountQueued]]) -> None:
        for job in jobs:
            tool, most, servers = job.operation
            values = (escape_text(tool), most, escape_texts(servers))
            rows = await connection.fetch(sql("count_queued"), *values, retry=True)
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

    def _to_events(self, rows: list[Any]) -> list[Event]:
        events = (self._unreadable_events.attempt(row["id"], _to_event, row) for row in rows)
        return [event for event in events if event is not None]

    def _to_kept_events(self, rows: list[Any]) -> list[KeptEvent]:
        events = (self._unreadable_events.attempt(row["id"], _to_kept_event, row) for row in rows)
        return [event for event in events if event is not None]

    def _to_page(
        self, rows: list[Any], limit: int, cursor_after: Callable[[int, int], str] = encode_cursor
    ) -> Page:
        records = tuple(self._to_records(rows[:limit]))
        last = rows[limit - 1] if len(rows) > limit else None
        cursor = None if last is None else cursor_after(last["created"], last["key"])
        return Page(records, cursor)


def list_name(field: SearchBy, filter: TaskFilter) -> str:
    """Return the name of the statement for a list that is searched by a field."""
    if field != "status":
        return f"list_by_{field}"
    is_ended = filter.outcome is not None or filter.phase == "ended"
    return "list_ended" if is_ended else "list_unfinished"


def _to_entries(rows: list[Any]) -> list[Entry]:
    for row in rows:
        check_format(row["format"])
    return [
        Entry(row["number"], unescape_text(row["kind"]), row["at"], msgspec.json.decode(row["data"]))
        for row in rows
    ]


def _to_event(row: Any) -> Event:
    check_format(row["format"])
    return Event(row["number"], unescape_text(row["id"]), row["at"], msgspec.json.decode(row["data"]))


def _to_kept_event(row: Any) -> KeptEvent:
    return KeptEvent(unescape_text(row["topic"]), _to_event(row), row["until"])


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
