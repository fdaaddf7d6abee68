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
- A task that has not ended is never deleted. An ended task is deleted once its `expires` has passed.
- Watchers in every process on the same store see a change within 50 ms.
- A published message reaches every current subscriber of its topic, in every process, exactly once.
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

__all__ = ["UNSET", "Claim", "Entry", "LeaseKeeper", "Page", "Phase", "Record", "Store", "UnsetType", "Watch"]

Phase: TypeAlias = Literal["ready", "waiting", "ended"]
"""A `ready` task needs a worker, a `waiting` task needs an answer, and an `ended` task needs nothing."""


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


class Claim(msgspec.Struct, frozen=True):
    """A task that a worker holds until its lease ends."""

    record: Record
    token: int


class Page(msgspec.Struct, frozen=True):
    """Some records, newest first, and the cursor of the next page."""

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
        """Append entries, set the phase and the head, and return the new version.

        Without entries, the version stays the same. A phase other than `ready` ends the lease. `expires` sets
        when the task expires; without it, that time stays as it is. Raises `Stale`, `LeaseLost` or `NoTask`.

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
    ) -> Page:
        """Return a page of a principal's tasks, or of all tasks for `None`, newest first.

        Raises `ValueError` for an invalid cursor.
        """

    async def claim(
        self,
        worker: str,
        *,
        lease: float,
        limit: int,
        tools: Collection[str] | None = None,
        server: str | None = None,
    ) -> Sequence[Claim]:
        """Claim ready tasks that no worker holds, oldest first, for `lease` seconds."""

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        """Extend leases, given by id and token, to `lease` seconds; return the ids that are still held.

        A task that was ended with `unwind_by` is not returned, although its lease is extended.
        """

    def lease_keeper(self) -> LeaseKeeper | None:
        """Return an object that renews leases while the event loop is blocked; `None` if none is needed.

        While the event loop of a store in memory is blocked, no other worker can claim a task.
        """

    async def release(self, id: str, token: int, *, delay: float = 0.0) -> None:
        """Give up a claim so that another worker can claim the task after `delay` seconds.

        The token becomes invalid at once. Ignores a token that is not current.
        """

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        """Delete up to `limit` ended tasks whose `expires` has passed, and return their records."""

    async def overdue(self, *, limit: int = 1000, server: str | None = None) -> Sequence[Record]:
        """Return up to `limit` tasks that have not ended although their `expires` has passed, earliest first.

        A task is returned again until it ends or `append` changes its `expires`.
        """

    async def count(self, phase: Phase, *, server: str | None = None) -> int:
        """Return the number of tasks in a phase.

        With a `server`, a database counts its tasks one by one, so that takes longer the more there are.
        """

    async def count_of_principal(self, principal: str, phase: Phase, *, most: int) -> int:
        """Return the number of a principal's tasks in a phase, or `most` if there are more.

        Reads the tasks of the principal, so that takes longer the more there are.
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

    async def publish(self, topic: str, data: Any) -> None:
        """Send a message to the current subscribers of a topic, in every process."""

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Receive the messages of a topic, from entering the context until the store is closed.

        A subscriber that falls far behind loses the oldest messages.
        """
