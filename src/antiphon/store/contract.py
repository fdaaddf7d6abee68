"""The contract of every store. It has no implementation and does not know what the entries mean.

A store keeps one append-only log per task. An entry is JSON. Beside the log it keeps a `Record`: the task's
owner, its phase, and a `head`. The head is the state that the engine computed from the log, so reading a
task's state does not require reading its log.

Every store gives the same guarantees, and one test suite checks them all:

- The changes of `create`, `append` and `use_once` are durable when the method returns. Calls that arrive
  together may share one commit.
- `append` is all or nothing. The writer passes the version it has read, and the store raises `Stale` if the
  log has grown since. A writer that passes a token also gets `LeaseLost` once another worker has the task.
- One worker at a time holds the claim on a task. Its token is larger than every earlier token of the task.
  A worker that dies loses its claims when their leases end.
- Claims go round the principals: one task of each is claimed before the second task of one of them. The tasks
  that a principal has queued on a server are claimed in the order in which they became ready. A task that a
  worker releases, or whose lease ends, keeps its place. A task that waited and is ready again has a new one.
- A task that has not ended is never deleted. An ended task is deleted once its `expires` has passed.
- Watchers in every process on the same store see a change within 50 ms.
- Tallies count every task that a list would show, in every moment and in every version of Antiphon.
- The bytes of a log count for its sharer from the commit that writes them to the one that deletes the task,
  in every version of Antiphon. Only what was written before a store had this count is left out.
- A published message reaches every current subscriber of its topic, in every process, exactly once.
- A waiting task whose `wakes` has passed is made ready by the next `wake`, in any process, exactly once.
- No operation gets slower as the number of tasks grows.
- A task whose row somebody damaged is left out of lists and claims, and logged once. `get` raises
  `StoreUnavailable` for it.

Several servers may share a store. A task belongs to the server that its record names. Operations with a
`server` concern the tasks of that server and the tasks without a server, which earlier versions have created.
Operations without one concern the tasks of all servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "UNSET",
    "Claim",
    "Count",
    "Entry",
    "Event",
    "HourlyKind",
    "HourlyTally",
    "KeptEvent",
    "Lease",
    "LeaseKeeper",
    "Outcome",
    "Page",
    "Phase",
    "Record",
    "Store",
    "Tallies",
    "Tally",
    "TaskFilter",
    "UnsetType",
    "Watch",
]

Phase: TypeAlias = Literal["ready", "waiting", "ended"]
"""A `ready` task needs a worker, a `waiting` task needs an answer, and an `ended` task needs nothing."""

Outcome: TypeAlias = Literal["done", "failed", "cancelled"]
"""How an ended task ended. `failed` means an error, or a result that says that the tool failed."""

HourlyKind: TypeAlias = Literal["created", "done", "failed", "cancelled", "ended"]
"""Why a task counts in an hour: it was created, or it ended so. `ended`: its head does not say how."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of a log. The first entry has the number 1."""

    number: int
    kind: str
    at: int
    """When the entry was written, in milliseconds since 1970."""
    data: Any
    """JSON, as the engine wrote it."""


class Record(msgspec.Struct, frozen=True):
    """The part of a task that a store understands. Times are in milliseconds since 1970."""

    id: str
    principal: str
    tool: str
    phase: Phase
    version: int
    """The number of entries in the log."""
    created: int
    updated: int
    expires: int | None
    """When an ended task expires, or a task that has not ended becomes overdue; `None` for never."""
    head: Any
    """The state that the engine computed from the log, as JSON."""
    server: str = ""
    """The name of the server that the task belongs to; empty if every server on the store may run it."""
    wakes: int | None = None
    """When `wake` makes a waiting task ready; `None` for never."""
    tags: tuple[str, ...] = ()
    """Texts under which a waiting task can be found: what it waits for, and who can answer it."""
    sharer: str = ""
    """Whose share of the store the task uses, if its principal has none; empty for the principal's share."""


class Event(msgspec.Struct, frozen=True):
    """A message to all tasks that wait for its topic, now or later."""

    number: int
    """A later event of the same topic has a larger number, also in another store: it is about the time at
    which the event was added, in microseconds since 1970."""
    id: str
    at: int
    """When the event was added, in milliseconds since 1970."""
    data: Any


class KeptEvent(msgspec.Struct, frozen=True):
    """An event as a store keeps it."""

    topic: str
    event: Event
    until: int
    """When the store deletes the event, in milliseconds since 1970."""


class Claim(msgspec.Struct, frozen=True):
    """A task that a worker holds until its lease ends."""

    record: Record
    token: int
    at: int = 0
    """When the task was claimed, by the clock of the store, in milliseconds since 1970."""


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tasks that a list contains: those to which every given field applies."""

    phase: Phase | None = None
    tool: str | None = None
    outcome: Outcome | None = None
    """How the task ended. Tasks that have not ended have no outcome."""
    created_before: int | None = None
    """The task is older than this time, in milliseconds since 1970."""
    created_since: int | None = None
    """The task was created at this time or later."""


class Tally(msgspec.Struct, frozen=True):
    """The number of tasks of one server, tool, phase and outcome."""

    server: str
    tool: str
    phase: Phase
    outcome: Outcome | None
    """`None` for tasks that have not ended, and for ended tasks whose head does not say how they ended."""
    tasks: int


class Tallies(msgspec.Struct, frozen=True):
    """The numbers of tasks in one moment. No row has 0 tasks."""

    rows: tuple[Tally, ...]
    is_exact: bool = True
    """False if the rows may count expired tasks, because very many of them have not been deleted."""

    def count(self, filter: TaskFilter | None = None) -> int:
        """Return the number of tasks that match a filter; raises `ValueError` for a filter by age."""
        wanted = filter or TaskFilter()
        if wanted.created_before is not None or wanted.created_since is not None:
            raise ValueError("Tallies have no ages: use `Store.count_listed` for a filter by age.")
        return sum(
            row.tasks
            for row in self.rows
            if wanted.phase in (None, row.phase)
            and wanted.tool in (None, row.tool)
            and wanted.outcome in (None, row.outcome)
        )


class Count(msgspec.Struct, frozen=True):
    """A number of tasks."""

    tasks: int
    is_exact: bool = True
    """False if there are more tasks, or if the number may include expired tasks (see `Tallies`)."""


class HourlyTally(msgspec.Struct, frozen=True):
    """The number of tasks of one server and tool that were created, or ended in one way, in one hour."""

    hour: int
    """When the hour began, in milliseconds since 1970."""
    server: str
    tool: str
    kind: HourlyKind
    tasks: int


class Lease(msgspec.Struct, frozen=True):
    """The tasks of one server and tool that a worker holds."""

    worker: str
    """The name of the worker; empty for tasks whose worker has to stop."""
    server: str
    tool: str
    tasks: int
    left: float
    """Seconds until the first of the leases ends; negative if its end has passed."""


class Page(msgspec.Struct, frozen=True):
    """Some records in the order of the list, and the cursor of the next page."""

    records: tuple[Record, ...]
    cursor: str | None


class Watch(Protocol):
    """A signal that something may have changed. It may fire too often, but it never misses a change."""

    async def wait(self, timeout: float) -> bool:
        """Wait for a change since the last call; return false after `timeout` seconds."""


class LeaseKeeper(Protocol):
    """Renews leases from a thread other than the event loop's. It has its own connection to the store.

    One thread at a time may call it. Close it before the store.
    """

    def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        """Block until the leases are extended; return the ids that are still held.

        Works like `Store.renew`. Raises `StoreUnavailable`.
        """

    def close(self) -> None:
        """Close the connection. You may call this twice."""


class Store(Protocol):
    """A store of tasks. Open it before use. Every method except `open` may raise `StoreUnavailable`."""

    async def open(self) -> None:
        """Open the store, and create or migrate its tables; raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Finish the queued operations and close the store. You may call this twice."""

    async def create(
        self,
        record: Record,
        entries: Sequence[tuple[str, Any]],
        *,
        worker: str | None = None,
        lease: float = 0.0,
    ) -> Claim | None:
        """Create a task whose log starts with these entries, each a kind and its data.

        The store ignores `record.version` and sets it to the number of entries. If you pass a `worker`,
        that worker holds the task from the start, for `lease` seconds. Raises `Stale` if the id is in use.
        """

    async def restore(self, record: Record, entries: Sequence[Entry], *, token: int = 0) -> bool:
        """Create a task with the log that it had in another store; return false if the id is in use.

        The entries keep their times, and no worker holds the task. Its next token is larger than `token`. A
        task that a worker may claim goes behind the others that its principal has queued.
        Raises `ValueError` if the entries are not numbered from 1 on.
        """

    async def extend(
        self, record: Record, entries: Sequence[Entry], *, token: int, expect: int, expect_token: int
    ) -> bool:
        """Bring a task that was restored up to date with its record and its whole log in the other store.

        Appends the entries above `expect`. Returns false and changes nothing unless the task has `expect`
        entries, no worker holds it, and its last token is `expect_token`: otherwise it has gone on here.
        Raises `ValueError` like `restore`.
        """

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
        """Append entries, set the phase and the head, and return the new version.

        Without entries, the version stays the same. A phase other than `ready` ends the lease. `expires` sets
        when the task expires; without it, that time stays as it is. Raises `Stale`, `LeaseLost` or `NoTask`.

        `wakes` and `tags` replace those of the record, and are only for the phase `waiting`: raises
        `ValueError` with another phase. A time in the past becomes the present.

        `before` is the time, by the clock of the store, before which the entries have to be written: raises
        `TooLate` if it has come.

        `unwind_by` is for the end of a task whose work has to be unwound. If a worker has ever claimed the
        task, its phase becomes `ready` in place of `phase`, and it does not expire before `unwind_by`. A
        worker that holds the task keeps it, and learns from `renew` that it has to stop.
        """

    async def get(self, id: str) -> Record | None:
        """Return a task's record, or `None` if the task does not exist or has expired."""

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """Return the entries numbered above `after`, in order; empty if the task does not exist."""

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
        """Return a page of a principal's tasks, or of all tasks for `None`, newest or oldest first.

        With a `filter`, only tasks that match it. A database finds the tasks of one principal, tool, phase
        or outcome in an index; with several of these, it reads the tasks of one and leaves the others out.
        An index has the tasks of a tool that have not ended, by phase. A store in memory reads its tasks one
        by one. Raises `ValueError` for an invalid filter, an invalid cursor, and the cursor of a list with
        another filter or order.
        """

    async def tallies(self, *, server: str | None = None) -> Tallies:
        """Return how many tasks there are, by server, tool, phase and outcome.

        Each change of a task changes the numbers in the same commit, also if an earlier version makes it.
        Expired tasks do not count, as in lists.
        """

    async def count_listed(
        self,
        principal: str | None,
        *,
        server: str | None = None,
        filter: TaskFilter | None = None,
        most: int = 10_000,
    ) -> Count:
        """Return how many tasks all pages of a list have, or `most` if there are more.

        Without a principal and an age, the number comes from the tallies and may exceed `most`. Otherwise
        the tasks are counted one by one. Raises `ValueError` for an invalid filter.
        """

    async def hourly_tallies(self, *, since: int, server: str | None = None) -> Sequence[HourlyTally]:
        """Return how many tasks were created and ended in each hour from the hour of `since` on.

        Earliest first. A task counts each time it ends, and still counts after it has expired. `expire`
        deletes the numbers of hours that began more than two weeks ago.
        """

    async def leases(self) -> Sequence[Lease]:
        """Return which workers hold how many tasks of each server and tool."""

    async def claim(
        self,
        worker: str,
        *,
        lease: float,
        limit: int,
        tools: Collection[str] | None = None,
        server: str | None = None,
    ) -> Sequence[Claim]:
        """Claim ready tasks that no worker holds for `lease` seconds, one of each principal in turn."""

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        """Extend leases, given by id and token, to `lease` seconds; return the ids that are still held.

        A task that was ended with `unwind_by` is not returned, although its lease is extended.
        """

    def lease_keeper(self) -> LeaseKeeper | None:
        """Return an object that renews leases while the event loop is blocked; `None` if none is needed.

        While the event loop of a store in memory is blocked, no other worker can claim a task.
        """

    async def release(self, id: str, token: int, *, delay: float = 0.0, requeue: bool = False) -> None:
        """Give up a claim so that another worker can claim the task after `delay` seconds.

        The token becomes invalid at once. Ignores a token that is not current. With `requeue`, the task goes
        behind the other tasks that its principal has queued.
        """

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        """Delete up to `limit` ended tasks whose `expires` has passed, and return their records."""

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        """Return up to `limit` tasks that have not ended although their `expires` has passed, earliest first.

        A task is returned again until it ends or `append` changes its `expires`.
        """

    async def wake(
        self, entry: tuple[str, Any], *, limit: int = 1000, server: str | None = None
    ) -> Sequence[str]:
        """Make up to `limit` waiting tasks ready whose `wakes` has passed, earliest first; return their ids.

        Appends the entry, a kind and its data, to the log of each. Their heads stay as they are.
        """

    async def wake_tagged(
        self, tags: Collection[str], entry: tuple[str, Any], *, limit: int = 1000
    ) -> Sequence[str]:
        """Make up to `limit` waiting tasks with one of the tags ready, as `wake` does; return their ids."""

    async def list_tagged(
        self, tags: Collection[str], *, cursor: str | None = None, limit: int = 100
    ) -> Page:
        """Return a page of the waiting tasks that have one of the tags, oldest first.

        Raises `ValueError` for an invalid cursor.
        """

    async def add_event(self, topic: str, id: str, data: Any, *, until: int) -> bool:
        """Keep an event until the time `until`; return false if the topic has an event of this id already.

        The event is durable when the method returns. It wakes no task: call `wake_tagged`.
        """

    async def read_events(self, topic: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        """Return the events of a topic that are numbered above `after`, in order."""

    async def list_events(
        self, *, after: tuple[str, int] | None = None, limit: int = 100
    ) -> Sequence[KeptEvent]:
        """Return kept events of all topics, in some order of topics, and by number.

        `after` is the topic and the number of the last event of the page before; `None` for the first page.
        """

    async def restore_event(self, kept: KeptEvent) -> bool:
        """Keep an event of another store with its number; return false if its topic has an event of its id.

        It wakes no task. The number is larger in the rare case that it is in use.
        """

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        """Return the number of tasks in a phase. Expired tasks count until they are deleted."""

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        """Return the number of a principal's tasks in a phase, or `most` if there are more.

        Reads the tasks of the principal, so that takes longer the more there are.
        """

    async def count_of_sharer(self, sharer: str, phase: Phase, *, most: int) -> int:
        """Return how many tasks with this `sharer` in their record no worker holds, or `most` if more are.

        In the phase `ready` or `waiting`.
        """

    async def stored_bytes(self, sharer: str = "", *, server: str | None = None) -> int:
        """Return how many bytes the logs of tasks have, of one sharer, or of all of them for the empty name.

        The sharer of a task is the one in its record, or else its principal. Each entry counts its kind, its
        data and a fixed number for its place. A task counts until it is deleted.
        """

    async def count_queued(self, tool: str, *, most: int, server: str | None = None) -> int:
        """Return the number of a tool's tasks that no worker holds and that are ready, or `most` if more are.

        Reads these tasks, so that takes longer the more there are.
        """

    async def oldest_ready(self, *, server: str | None = None) -> int | None:
        """Return when the next task to be claimed last changed; `None` if no task can be claimed."""

    async def probe(self) -> None:
        """Check that the store can be used: make a small durable write and read it.

        May take as long as the disk or the network does, so bound it in time. Raises `StoreUnavailable`.
        """

    async def use_once(self, key: str, *, until: int) -> bool:
        """Record a key until the time `until`; return false if the key is already recorded."""

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        """Watch a task: the watch fires when its log grows or the task is deleted, in any process."""

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        """Watch for tasks that become ready, in any process."""

    def watch_all(self) -> AbstractAsyncContextManager[Watch]:
        """Watch all tasks: the watch fires when one is created, grows or is deleted, in any process."""

    async def publish(self, topic: str, data: Any) -> None:
        """Send a message to the current subscribers of a topic, in every process."""

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Receive the messages of a topic, from entering the context until the store is closed.

        A subscriber that falls far behind loses the oldest messages.
        """
