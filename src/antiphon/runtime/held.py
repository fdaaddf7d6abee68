"""A task that this process holds: its log is written here, and nowhere else, while the lease lasts.

Owns the version and the token of one claim. Every entry goes through `write`, which folds it into the
task's head, and is refused once the lease is another's or the task has ended behind our back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.errors import LeaseLost, Stale
from antiphon.model.task import EntryKind, Task
from antiphon.runtime.journal import Journal
from antiphon.store.log import Phase, Record, Store

__all__ = ["PHASES", "Held", "head_of", "now", "task_of"]

PHASES: dict[str, Phase] = {
    "working": "ready",
    "waiting": "waiting",
    "done": "ended",
    "faulted": "ended",
    "cancelled": "ended",
}
"""What a state means to a store: whether the task wants a worker, an answer, or nothing."""

_TRIES = 20


def now() -> int:
    """The time, in milliseconds since 1970."""
    return int(time.time() * 1000)


def head_of(task: Task) -> Any:
    """A task as a record's head."""
    return msgspec.to_builtins(task)


def task_of(record: Record) -> Task:
    """The task in a record's head."""
    return msgspec.convert(record.head, Task)


class Held:
    """One claim."""

    __slots__ = ("_store", "_version", "created", "journal", "responses", "task", "token")

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

    async def write(self, kind: EntryKind, data: dict[str, Any]) -> None:
        """Append an entry; raises `LeaseLost` once the task is another's, or has ended."""
        for _ in range(_TRIES):
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
            except Stale:
                await self._catch_up()
                continue
            self.task = task
            return
        raise LeaseLost(f"The task {self.task.id} is written by somebody else.")

    async def release(self) -> None:
        """Let another worker have it at once."""
        await self._store.release(self.task.id, self.token)

    async def _record(self, new: dict[str, Any]) -> None:
        await self.write("recorded", {"journal": new})

    async def _catch_up(self) -> None:
        """Take over what somebody else has appended meanwhile."""
        record = await self._store.get(self.task.id)
        if record is None:
            raise LeaseLost(f"The task {self.task.id} is no longer there.")
        self.task = task_of(record)
        self._version = record.version
