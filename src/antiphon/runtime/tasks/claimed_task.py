"""A task that this process holds: its log is written here, and nowhere else, while the lease lasts.

Owns the version and the token of one claim. Every entry goes through `write`, which folds it into the
task's head, and is refused once the lease is another's or the task has ended behind our back.
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

__all__ = ["PHASES", "ClaimedTask", "head_of", "now", "task_of"]

PHASES: dict[str, Phase] = {
    "working": "ready",
    "waiting": "waiting",
    "done": "ended",
    "faulted": "ended",
    "cancelled": "ended",
}
"""What a state means to a store: whether the task wants a worker, an answer, or nothing."""

_MAX_WRITE_ATTEMPTS = 20
_STORE_OUTAGE_SECONDS = 600.0
"""How long, in seconds, a run stands still for a store that is away, before it is left to another worker."""
_PENDING_WRITE_WAIT_SECONDS = 0.05
"""How long, in seconds, somebody who looks at a task waits for an end of it that is being written."""


def now() -> int:
    """The time, in milliseconds since 1970."""
    return int(time.time() * 1000)


def head_of(task: Task) -> Any:
    """A task as a record's head."""
    return msgspec.to_builtins(task)


def task_of(record: Record) -> Task:
    """The task in a record's head."""
    return msgspec.convert(record.head, Task)


class ClaimedTask:
    """One claim."""

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
        """What was answered in the round before the run that is due."""
        self.journal = Journal(journal, write=self._record)
        self._waiting: list[asyncio.Future[Task | None]] | None = None
        self._lock = asyncio.Lock()

    @property
    def principal(self) -> str:
        """The id of whoever it belongs to."""
        return str(self.created["principal"]["id"])

    async def write(self, kind: EntryKind, data: dict[str, Any]) -> None:
        """Append an entry; raises `LeaseLost` once the task is another's, or has ended."""
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
        """Append segments, of which the first has this number."""
        await self.write("emitted", {"first": first, "blocks": msgspec.to_builtins(blocks)})

    async def wait_for_write(self) -> Task | None:
        """The task, if it is about to end or to ask something, once that is durable.

        `None` if nothing of the kind is being written, or it takes too long: whoever looks then is told
        how the task stands meanwhile. It saves those who look at a quick task a second look.
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
                # The run stands still. The lease may still hold when the store is back, and it may have
                # taken the entry before it went away.
                is_uncertain = True
                await backoff.wait(error)
        raise LeaseLost(f"The task {self.task.id} is written by somebody else.")

    async def _try(self, kind: EntryKind, data: dict[str, Any], is_uncertain: bool) -> bool:
        """Append an entry, unless it is there already; false if somebody else was quicker."""
        if self.task.has_ended:
            raise LeaseLost(f"The task {self.task.id} has ended.")
        task = self.task.after(kind, data, now())
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
        """Whether the next entry is this one: the store took it, and was away before it could say so."""
        entries = await self._store.read(self.task.id, after=self._version, limit=1)
        written = msgspec.json.decode(msgspec.json.encode(data))
        return any(entry.kind == kind and entry.data == written for entry in entries)

    async def release(self) -> None:
        """Let another worker have it at once."""
        await self._store.release(self.task.id, self.token)

    async def _record(self, new: dict[str, Any]) -> None:
        await self.write("recorded", {"journal": new})

    async def _reload(self) -> None:
        """Take over what somebody else has appended meanwhile."""
        record = await self._store.get(self.task.id)
        if record is None:
            raise LeaseLost(f"The task {self.task.id} is no longer there.")
        self.task = task_of(record)
        self._version = record.version


def _set(future: asyncio.Future[Task | None], task: Task | None) -> None:
    if not future.done():
        future.set_result(task)
