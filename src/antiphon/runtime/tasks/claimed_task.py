"""A task that this process has claimed: only this process writes the task's log while the lease lasts.

Owns the version and the token of the claim. `write` appends every entry and updates the task's record. The
store refuses an entry after another worker has claimed the task, or after the task has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from antiphon.backoff import Backoff
from antiphon.errors import LeaseLost, Stale, StoreUnavailable
from antiphon.model.task import TRANSITIONS, EntryKind, Task
from antiphon.runtime.execution.journal import Journal
from antiphon.store.contract import Phase, Record, Store

__all__ = ["PHASES", "ClaimedTask", "head_of", "now_ms", "task_of"]

PHASES: dict[str, Phase] = {
    "working": "ready",
    "waiting": "waiting",
    "done": "ended",
    "faulted": "ended",
    "cancelled": "ended",
}
"""The phase of each state in the store: the task needs a worker, needs an answer, or has ended."""

_MAX_WRITE_ATTEMPTS = 20
"""How often a write is attempted while other processes write to the same task."""
_STORE_OUTAGE_SECONDS = 600.0
"""How long a run waits for a store that does not respond, before another worker may take it over.

Not a setting: the lease decides when another worker takes over; this only bounds a run that cannot.
"""
_PENDING_WRITE_WAIT_SECONDS = 0.05
"""How long a request for a task waits for a change of the task that is being written.

Not a setting: it saves callers a second poll of a quick task, and is shorter than any poll interval.
"""


def now_ms() -> int:
    """Return the time, in milliseconds since 1970."""
    return int(time.time() * 1000)


def head_of(task: Task) -> Any:
    """Return a task in the form that a record keeps."""
    return msgspec.to_builtins(task)


def task_of(record: Record) -> Task:
    """Return the task that a record keeps."""
    return msgspec.convert(record.head, Task)


class ClaimedTask:
    """A claim on one task, with the journal of the task."""

    __slots__ = (
        "_lock",
        "_store",
        "_version",
        "_waiting",
        "created",
        "journal",
        "responses",
        "task",
        "token",
    )

    def __init__(
        self,
        store: Store,
        task: Task,
        created: dict[str, Any],
        *,
        version: int,
        token: int,
        journal: dict[str, Any],
        responses: Mapping[str, Any],
    ) -> None:
        self._store = store
        self._version = version
        self.task = task
        self.created = created
        self.token = token
        self.responses = responses
        """The answers that arrived since the last run."""
        self.journal = Journal(journal, write=self._record, id=task.id)
        self._waiting: list[asyncio.Future[Task | None]] | None = None
        self._lock = asyncio.Lock()

    @property
    def principal(self) -> str:
        """The id of the principal that owns the task."""
        return str(self.created["principal"]["id"])

    async def write(self, kind: EntryKind, data: dict[str, Any]) -> None:
        """Append an entry; raises `LeaseLost` if another worker has the task, or the task has ended."""
        state = self.task.state
        if TRANSITIONS.get((state, kind), state) == state:
            await self._write(kind, data)
            return
        self._waiting, written = [], None
        try:
            await self._write(kind, data)
            written = self.task
        finally:
            waiting, self._waiting = self._waiting, None
            for future in waiting:
                _set(future, written)

    async def emit(self, first: int, blocks: Sequence[Any]) -> None:
        """Append segments; `first` is the number of the first one."""
        await self.write("emitted", {"first": first, "blocks": msgspec.to_builtins(blocks)})

    async def wait_for_write(self) -> Task | None:
        """Wait for a change of state that is being written, and return the task after it.

        Returns `None` if no change of state is being written, or if the write takes too long. This saves
        callers who poll a quick task a second request.
        """
        if self._waiting is None:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Task | None] = loop.create_future()
        self._waiting.append(future)
        timer = loop.call_later(_PENDING_WRITE_WAIT_SECONDS, _set, future, None)
        try:
            return await future
        finally:
            timer.cancel()

    async def _write(self, kind: EntryKind, data: dict[str, Any]) -> None:
        async with self._lock:
            await self._append(kind, data)

    async def _append(self, kind: EntryKind, data: dict[str, Any]) -> None:
        backoff, is_uncertain = Backoff(timeout=_STORE_OUTAGE_SECONDS), False
        attempts = _MAX_WRITE_ATTEMPTS
        while attempts:
            try:
                if await self._try(kind, data, is_uncertain):
                    return
                attempts -= 1
            except StoreUnavailable as error:
                # The run waits. The lease may still be valid when the store responds again, and the store
                # may have written the entry before it failed.
                is_uncertain = True
                await backoff.wait(error)
        raise LeaseLost(f"Cannot write to task {self.task.id}: other processes keep writing to it.")

    async def _try(self, kind: EntryKind, data: dict[str, Any], is_uncertain: bool) -> bool:
        """Append an entry, unless it is in the log already; return false if another process wrote first."""
        if self.task.has_ended:
            raise LeaseLost(f"Cannot write to task {self.task.id}: the task has ended.")
        task = self.task.after(kind, data, now_ms())
        try:
            self._version = await self._store.append(
                task.id,
                [(kind, data)],
                expect=self._version,
                phase=PHASES[task.state],
                head=head_of(task),
                token=self.token,
            )
        except (Stale, LeaseLost) as refusal:
            if is_uncertain and await self._is_written(kind, data):
                self._version += 1
            elif isinstance(refusal, LeaseLost):
                raise
            else:
                await self._reload()
                return False
        self.task = task
        return True

    async def _is_written(self, kind: EntryKind, data: dict[str, Any]) -> bool:
        """Return whether the entry is in the log: the store may have written it before it failed."""
        entries = await self._store.read(self.task.id, after=self._version, limit=1)
        written = msgspec.json.decode(msgspec.json.encode(data))
        return any(entry.kind == kind and entry.data == written for entry in entries)

    async def release(self) -> None:
        """Release the claim, so that another worker can take the task at once."""
        await self._store.release(self.task.id, self.token)

    async def _record(self, new: dict[str, Any]) -> None:
        await self.write("recorded", {"journal": new})

    async def _reload(self) -> None:
        """Load the task again, because another process has appended entries."""
        record = await self._store.get(self.task.id)
        if record is None:
            raise LeaseLost(f"Cannot write to task {self.task.id}: the store no longer has it.")
        self.task = task_of(record)
        self._version = record.version


def _set(future: asyncio.Future[Task | None], task: Task | None) -> None:
    if not future.done():
        future.set_result(task)
