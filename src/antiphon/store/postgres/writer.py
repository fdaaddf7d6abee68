"""Writes batches of operations, with one statement for all operations of the same kind.

A statement is a transaction, so its changes are durable when it returns. The statement itself decides which
operations it refuses; `rules.py` then finds the reason. The writer does not know the callers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import msgspec

from antiphon.errors import Stale, StoreError
from antiphon.store import rules
from antiphon.store.commit_stats import CommitStats
from antiphon.store.contract import UNSET, Phase, UnsetType
from antiphon.store.postgres.batcher import Job
from antiphon.store.postgres.claimer import Claimer, ClaimTasks
from antiphon.store.postgres.connection import ReconnectingConnection, WriteContext
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.event_log import AddEvent, EventLog
from antiphon.store.postgres.expirer import Expire, Expirer
from antiphon.store.postgres.restorer import Extend, Restore, Restorer
from antiphon.store.postgres.statements import (
    FORMAT,
    columns,
    escape_tags,
    escape_text,
    record_of,
    sql,
    to_bigint,
    unescape_text,
)
from antiphon.store.postgres.waker import Waker, WakeTagged, WakeTasks
from antiphon.store.rules import EncodedEntry, Row
from antiphon.store.unreadable import UnreadableRecords
from antiphon.store.watchers import Watchers

__all__ = [
    "Append",
    "Create",
    "Probe",
    "Publish",
    "Release",
    "Renew",
    "UseOnce",
    "WriteOperation",
    "Writer",
    "conflict_keys",
]

_MAX_ATTEMPTS = 5
"""Attempts of a statement that PostgreSQL aborts because of a deadlock with another process."""
_PROBE_KEY = "\1probe"
"""The key that probes record. `escape_text` never returns it, so it is no caller's key."""
_COUNT_SLOTS = 251
"""Rows per phase in the `counts` table. A prime, so that the random origins spread evenly over the rows."""
MAX_SLOT_USES = 100
"""Changes of the counts in one slot, before the process goes on with another one."""


class Create(NamedTuple):
    """Creates a task."""

    row: Row
    entries: Sequence[EncodedEntry]
    worker: str | None
    lease: int


class Append(NamedTuple):
    """Appends to a log."""

    id: str
    entries: Sequence[EncodedEntry]
    expect: int
    phase: Phase
    head: str
    token: int | None
    expires: int | UnsetType | None = UNSET
    unwind_by: int | None = None
    wakes: int | None = None
    tags: str | None = None
    before: int | None = None


class Renew(NamedTuple):
    """Extends leases."""

    claims: Sequence[tuple[str, int]]
    lease: int


class Release(NamedTuple):
    """Gives up a claim."""

    id: str
    token: int
    delay: int = 0
    requeue: bool = False


class UseOnce(NamedTuple):
    """Records a key."""

    key: str
    until: int


class Publish(NamedTuple):
    """Publishes a message."""

    topic: str
    data: str


class Probe(NamedTuple):
    """Makes a small write, to see that the database accepts one."""


WriteOperation: TypeAlias = (
    Create
    | Restore
    | Extend
    | Append
    | Renew
    | Release
    | UseOnce
    | Publish
    | AddEvent
    | WakeTasks
    | WakeTagged
    | ClaimTasks
    | Expire
    | Probe
)
_Jobs: TypeAlias = list[Job[Any]]


def conflict_keys(operation: WriteOperation) -> tuple[str, ...]:
    """Return the names of the rows that no two operations of one statement may write."""
    if isinstance(operation, Append):
        return (f"task {operation.id}",)
    if isinstance(operation, Create | Restore | Extend):
        return (f"task {operation.row.id}",)
    if isinstance(operation, AddEvent):
        return (f"event {len(operation.topic)} {operation.topic} {operation.id}",)
    return (f"key {operation.key}",) if isinstance(operation, UseOnce) else ()


class Writer:
    """The connection that writes the tasks of one store, and notifies the watchers of all processes."""

    def __init__(
        self,
        database: Database,
        origin: str,
        clock: Callable[[], int | None],
        *,
        watchers: Watchers,
        stats: CommitStats,
        unreadable: UnreadableRecords,
    ) -> None:
        self.connection = ReconnectingConnection(database)
        self._database = database
        self._origin = origin
        self._slot_number = int(origin, 16) % _COUNT_SLOTS
        self._slot_uses = 0
        self._deleted_message = 0
        self._clock = clock
        self.claimer = Claimer(self.connection, clock, unreadable)
        context = WriteContext(self.connection, clock, database.schema, origin, self._slot)
        self.waker = Waker(context)
        self._expirer = Expirer(context)
        self._events = EventLog(context)
        self._restorer = Restorer(context)
        self._watchers = watchers
        self._stats = stats
        self._unreadable = unreadable

    async def close(self) -> None:
        """Record the last turns for other processes, and close the connection."""
        await self.claimer.record_turns(at_once=True)
        await self.connection.close()

    async def run(self, jobs: _Jobs) -> None:
        """Run a batch, and end each of its jobs. Searches come last, so that they find the other changes."""
        if (now := self._clock()) is not None:
            self.claimer.note_time(now)
        for kinds, handler in (
            ((Create, Append), self._write),
            ((Restore,), self._restore),
            ((Extend,), self._extend),
            ((Release,), self._release),
            ((Renew,), self._renew),
            ((UseOnce,), self._use_once),
            ((Publish,), self._publish),
            ((AddEvent,), self._add_events),
            ((WakeTasks, WakeTagged), self._wake),
            ((ClaimTasks,), self._claim),
            ((Expire,), self._expire),
            ((Probe,), self._probe),
        ):
            matching = [job for job in jobs if isinstance(job.operation, kinds)]
            if matching:
                await self._try(matching, handler)

    async def _try(self, jobs: _Jobs, handler: Callable[[_Jobs], Any]) -> None:
        """Run operations of one kind together; if one is invalid, run each alone, so that only one fails."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                await handler(jobs)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
                if attempt + 1 == _MAX_ATTEMPTS:
                    _fail_all(jobs, self._database.explain(error, "written"))
            except asyncpg.DataError as error:
                if len(jobs) == 1:
                    _fail_all(jobs, ValueError(f"PostgreSQL cannot store a value: {error}."))
                else:
                    for job in jobs:
                        await self._try([job], handler)
                return
            except asyncpg.PostgresError as error:
                _fail_all(jobs, self._database.explain(error, "written"))
                return
            except StoreError as error:
                _fail_all(jobs, error)
                return
            else:
                return

    async def _write(self, jobs: _Jobs) -> None:
        creates = [job for job in jobs if isinstance(job.operation, Create)]
        appends = [job for job in jobs if isinstance(job.operation, Append)]
        if any(job.operation.phase == "ready" and job.operation.token is None for job in appends):
            await self.claimer.record_turns(at_once=True)  # a trigger reads them if the task has waited
        values = (
            *columns((_create_row(job.operation) for job in creates), 12),
            *columns((_append_row(job.operation) for job in appends), 9),
            *columns(_entry_rows(creates, appends), 4),
        )
        rows = await self.connection.fetch(
            sql("write"),
            self._clock(),
            FORMAT,
            *values,
            self._slot(),
            self._database.schema,
            self._origin,
            *_wait_columns([job.operation.row for job in creates]),
            *_wait_columns([job.operation for job in appends]),
            await self.claimer.next_turns([_waiting_row(job.operation) for job in creates]),
            _deadlines([job.operation for job in appends]),
            [escape_text(job.operation.row.sharer) for job in creates],
            [rules.size_of(job.operation.entries) for job in creates],
            [rules.size_of(job.operation.entries) for job in appends],
        )
        written = {row["id"]: row for row in rows}
        self._count(len(written))
        for job in creates:
            self._expirer.note_phase(job.operation.row.phase, job.operation.row.expires)
        for job in appends:
            self._expirer.note_phase(job.operation.phase, job.operation.expires)
        self._watchers.notify([unescape_text(id) for id in written], any(row["free"] for row in rows))
        for job in creates:
            operation: Create = job.operation
            row = written.get(escape_text(operation.row.id))
            if row is None:
                job.fail(rules.id_in_use(operation.row.id))
            elif operation.worker is None:
                job.succeed(None)
            else:
                job.succeed((row["token"], row["now"]))
        refused = []
        for job in appends:
            row = written.get(escape_text(job.operation.id))
            if row is None:
                refused.append(job)
            else:
                job.succeed(row["version"])
        if refused:
            await self.explain_refusals(refused)

    async def _restore(self, jobs: _Jobs) -> None:
        operations = [job.operation for job in jobs]
        turns = await self.claimer.next_turns([operation.row for operation in operations])
        rows = await self._restorer.restore(operations, turns)
        restored = {unescape_text(row["id"]) for row in rows}
        self._count(len(restored))
        self._watchers.notify(restored, any(row["free"] for row in rows))
        for job in jobs:
            row = job.operation.row
            self._expirer.note_phase(row.phase, row.expires)
            job.succeed(row.id in restored)

    async def _extend(self, jobs: _Jobs) -> None:
        for job in jobs:
            row = job.operation.row
            rows = await self._restorer.extend(job.operation)
            self._expirer.note_phase(row.phase, row.expires)
            self._watchers.notify([row.id] if rows else [], any(found["free"] for found in rows))
            job.succeed(bool(rows))

    async def explain_refusals(self, jobs: _Jobs) -> None:
        """Fail refused appends with the reason. An append that is allowed by now was refused as stale."""
        ids = [escape_text(job.operation.id) for job in jobs]
        rows = await self.connection.fetch(sql("task_rows"), ids, self._clock(), retry=True)
        found = {row["id"]: row for row in rows}
        for job in jobs:
            operation: Append = job.operation
            row = found.get(escape_text(operation.id))
            try:
                rules.check_append(
                    None if row is None else Row(*tuple(row)[:13]),
                    operation.id,
                    expect=operation.expect,
                    token=operation.token,
                    now=0 if row is None else row["now"],
                    before=operation.before,
                )
            except StoreError as refusal:
                job.fail(refusal)
            else:
                job.fail(
                    Stale(
                        f"Another process was writing to the task {operation.id!r}: "
                        "read the log and decide again."
                    )
                )

    async def _renew(self, jobs: _Jobs) -> None:
        claims = [
            (escape_text(id), to_bigint(token), job.operation.lease)
            for job in jobs
            for id, token in dict(job.operation.claims).items()
        ]
        rows = await self.connection.fetch(sql("renew"), self._clock(), *columns(claims, 3), retry=True)
        held = {unescape_text(row["id"]) for row in rows if not row["is_stopping"]}
        self._count(len(held))
        for job in jobs:
            job.succeed({id for id, _ in job.operation.claims if id in held})

    async def _release(self, jobs: _Jobs) -> None:
        claims = [
            (escape_text(job.operation.id), to_bigint(job.operation.token), job.operation.delay)
            for job in jobs
        ]
        requeued = [claim[:2] for claim, job in zip(claims, jobs, strict=True) if job.operation.requeue]
        if requeued:
            await self.claimer.record_turns(at_once=True)
            await self.connection.fetch(sql("requeue"), *columns(requeued, 2), retry=True)
        rows = await self.connection.fetch(
            sql("release"),
            self._clock(),
            *columns(claims, 3),
            self._database.schema,
            self._origin,
            retry=True,
        )
        self._count(len(jobs))
        self._watchers.notify((), rows[0]["free"])
        for job in jobs:
            job.succeed(None)

    async def _use_once(self, jobs: _Jobs) -> None:
        keys = [(escape_text(job.operation.key), job.operation.until) for job in jobs]
        rows = await self.connection.fetch(sql("use_once"), self._clock(), *columns(keys, 2))
        recorded = {row["key"] for row in rows}
        self._count(len(recorded))
        for job in jobs:
            job.succeed(escape_text(job.operation.key) in recorded)

    async def _publish(self, jobs: _Jobs) -> None:
        messages = [(escape_text(job.operation.topic), job.operation.data) for job in jobs]
        rows = await self.connection.fetch(
            sql("publish"), *columns(messages, 2), self._database.schema, self._origin, self._deleted_message
        )
        self._deleted_message = rows[0]["last_deleted"] or self._deleted_message
        self._count(len(jobs))
        for job in jobs:
            self._watchers.deliver(job.operation.topic, msgspec.json.decode(job.operation.data))
            job.succeed(None)

    async def _add_events(self, jobs: _Jobs) -> None:
        added = await self._events.add([job.operation for job in jobs])
        self._count(added.count(True))
        for job, is_new in zip(jobs, added, strict=True):
            job.succeed(is_new)
        await self._events.delete_old_for(len(jobs))

    async def _wake(self, jobs: _Jobs) -> None:
        await self.claimer.record_turns(at_once=True)  # the statement reads them
        for job in jobs:
            ids = await self.waker.wake(job.operation)
            self._count(len(ids))
            self._watchers.notify(ids, bool(ids))
            job.succeed(ids)

    async def _claim(self, jobs: _Jobs) -> None:
        for job in jobs:
            claims = await self.claimer.claim(job.operation)
            self._count(len(claims))
            job.succeed(claims)
        await self.claimer.record_turns()

    async def _expire(self, jobs: _Jobs) -> None:
        await self._events.delete_old()
        for job in jobs:
            rows = await self._expirer.expire(job.operation)
            self._count(len(rows))
            records = [
                self._unreadable.attempt(row["id"], record_of, row) or record_of({**row, "head": "null"})
                for row in rows
            ]
            self._watchers.notify([record.id for record in records], False)
            job.succeed(records)

    def _slot(self) -> int:
        """Return the slot for the next change of the counts, another one after some changes.

        While another transaction is open for long, each change of a row makes the next one slower.
        """
        self._slot_uses += 1
        if self._slot_uses > MAX_SLOT_USES:
            self._slot_number, self._slot_uses = secrets.randbelow(_COUNT_SLOTS), 1
        return self._slot_number

    async def _probe(self, jobs: _Jobs) -> None:
        await self.connection.fetch(sql("probe"), _PROBE_KEY, retry=True)
        for job in jobs:
            job.succeed(None)

    def _count(self, operations: int) -> None:
        if operations:
            self._stats.add(operations)


def _create_row(operation: Create) -> tuple[Any, ...]:
    row = operation.row
    return (
        escape_text(row.id),
        escape_text(row.principal),
        escape_text(row.tool),
        row.phase,
        row.version,
        row.created,
        row.updated,
        row.expires,
        None if operation.worker is None else escape_text(operation.worker),
        operation.lease,
        row.head,
        escape_text(row.server),
    )


def _waiting_row(operation: Create) -> Row | None:
    """Return the row of a new task; `None` if a worker holds the task from the start."""
    return operation.row if operation.worker is None else None


def _append_row(operation: Append) -> tuple[Any, ...]:
    return (
        escape_text(operation.id),
        to_bigint(operation.expect),
        len(operation.entries),
        operation.phase,
        operation.head,
        None if operation.token is None else to_bigint(operation.token),
        operation.expires is not UNSET,
        None if operation.expires is UNSET else operation.expires,
        operation.unwind_by,
    )


def _wait_columns(rows: Sequence[Row | Append]) -> tuple[list[int | None], list[str | None]]:
    """Return when tasks wake, and their tags, as two arrays; empty arrays if no task has either."""
    if all(row.wakes is None and row.tags is None for row in rows):
        return [], []
    return [row.wakes for row in rows], [escape_tags(row.tags) for row in rows]


def _deadlines(appends: Sequence[Append]) -> list[int | None]:
    """Return before when the appends have to be written; empty if there is no such time."""
    deadlines = [append.before for append in appends]
    return deadlines if any(deadline is not None for deadline in deadlines) else []


def _entry_rows(creates: _Jobs, appends: _Jobs) -> list[tuple[Any, ...]]:
    logs = [(job.operation.row.id, 1, job.operation.entries) for job in creates]
    logs += [(job.operation.id, job.operation.expect + 1, job.operation.entries) for job in appends]
    return [
        (escape_text(id), to_bigint(number), escape_text(kind), data)
        for id, first, entries in logs
        for number, (kind, data) in enumerate(entries, first)
    ]


def _fail_all(jobs: _Jobs, error: Exception) -> None:
    for job in jobs:
        job.fail(error)
