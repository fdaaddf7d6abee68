"""What a store must do. No implementation, no protocol version, and no idea what the entries mean.

A store keeps one append-only log a task. An entry is JSON. Beside the log it keeps a `Record`: who the
task belongs to, which phase it is in, and a `head`, which is what the engine has folded from the log, so
that nobody has to read a log to know how a task stands.

Every backend keeps the same promises, and one suite tests them all:

- What `create`, `append` and `use_once` did is durable when they return. Those that come at the same
  time may share one commit.
- `append` is all or nothing. It names the version that the writer has seen, and is refused with `Stale`
  if the log has grown since. With a token it is also refused, with `LeaseLost`, once the lease is another's.
- A claim is held by one worker at a time. Its token is larger than every token given out before for the
  task. A worker that dies loses its claims when their leases end.
- What one process wrote is seen by the watchers of every other process on the same store within 50 ms.
- What one process publishes on a topic is heard by all who hear it then, in every process, once.
- No operation gets dearer because there are many tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

__all__ = ["Claim", "Entry", "Page", "Phase", "Record", "Store", "Watch"]

Phase: TypeAlias = Literal["ready", "waiting", "ended"]
"""`ready` wants a worker, `waiting` wants an answer and no worker, `ended` wants nothing any more."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of a log; the first has the number 1."""

    number: int
    kind: str
    at: int
    """When it was written, in milliseconds since 1970."""
    data: Any
    """JSON, as the engine wrote it."""


class Record(msgspec.Struct, frozen=True):
    """A task, as far as a store understands it. Times are in milliseconds since 1970."""

    id: str
    principal: str
    tool: str
    phase: Phase
    version: int
    """How many entries the log has."""
    created: int
    updated: int
    expires: int | None
    """When the task is forgotten, `None` for never."""
    head: Any
    """JSON: what the engine folded from the log."""


class Claim(msgspec.Struct, frozen=True):
    """A task that a worker holds, until its lease ends."""

    record: Record
    token: int


class Page(msgspec.Struct, frozen=True):
    """Some records, newest first, and where to go on."""

    records: tuple[Record, ...]
    cursor: str | None


class Watch(Protocol):
    """Tells when something may have changed. It may tell too often, never too rarely."""

    async def wait(self, timeout: float) -> bool:
        """Wait until something has happened since the last call; false after `timeout` seconds."""


class Store(Protocol):
    """A place for tasks. Open it before use; every method but `open` may raise `StoreUnavailable`."""

    async def open(self) -> None:
        """Get ready: create or migrate what is there; raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Let go, after everything that was promised is durable. May be called twice."""

    async def create(
        self,
        record: Record,
        entries: Sequence[tuple[str, Any]],
        *,
        worker: str | None = None,
        lease: float = 0.0,
    ) -> Claim | None:
        """Begin a log with these entries, each a kind and its data.

        `record.version` is ignored: it becomes the number of entries. With a `worker`, that worker holds
        the task from the start, for `lease` seconds. Raises `Stale` if there is a task of that id.
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
    ) -> int:
        """Add entries and set the phase and the head; returns the new version.

        A phase other than `ready` ends whatever lease there is. Raises `Stale`, `LeaseLost`, or `NoTask`.
        """

    async def get(self, id: str) -> Record | None:
        """A task's record; `None` if there is none, or it has expired."""

    async def read(self, id: str, *, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """Entries after a number, in order; empty for a task that is not there."""

    async def list(self, principal: str | None, *, cursor: str | None = None, limit: int = 100) -> Page:
        """Tasks of a principal, or of all with `None`; newest first. Raises `ValueError` for a bad cursor."""

    async def claim(
        self, worker: str, *, lease: float, limit: int, tools: Collection[str] | None = None
    ) -> Sequence[Claim]:
        """Take hold of tasks that are ready and that nobody holds, oldest first, for `lease` seconds."""

    async def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        """Hold tasks, by id and token, for `lease` seconds more; returns the ids that are still held."""

    async def release(self, id: str, token: int) -> None:
        """Let another worker have a task at once. Does nothing if the lease is another's."""

    async def expire(self, *, limit: int = 1000) -> Sequence[Record]:
        """Forget tasks whose time is over, with their logs; returns those forgotten, `limit` at most."""

    async def count(self, phase: Phase) -> int:
        """How many tasks are in a phase."""

    async def oldest(self) -> int | None:
        """Since when the task waits that a worker would get next; `None` if none waits."""

    async def use_once(self, key: str, *, until: int) -> bool:
        """Note a key until that time; false if it was noted before and is not yet over."""

    def watch(self, id: str) -> AbstractAsyncContextManager[Watch]:
        """Be told when a task's log grows, or the task goes, in whatever process that happens."""

    def watch_ready(self) -> AbstractAsyncContextManager[Watch]:
        """Be told when a task becomes ready."""

    async def publish(self, topic: str, data: Any) -> None:
        """Tell everyone who hears a topic now, in whatever process; it is kept for nobody else."""

    def hear(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Hear what is published on a topic, from entering on and until the store is closed.

        Whoever falls far behind misses what is oldest.
        """
