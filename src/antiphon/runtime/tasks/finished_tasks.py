"""The tasks that ended here lately. Nothing follows an end, so what is kept of one stays true while it lives.

Owns how many are kept and for how long. It saves callers who come for their results the way to the store.
"""

from __future__ import annotations

import msgspec

from antiphon.model.task import Task
from antiphon.runtime.tasks.claimed_task import now

__all__ = ["FinishedTasks"]

_MAX_TASKS = 1000
"""Tasks that are kept."""
_MAX_BYTES = 4 * 1024 * 1024
"""What they may take together; one that takes more than a sixteenth of it is not kept."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Task).decode


class FinishedTasks:
    """Some ended tasks, by id. As text, so that nobody can change what was written."""

    __slots__ = ("_bytes", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, int | None, bytes]] = {}
        self._bytes = 0

    def add(self, task: Task, principal: str) -> None:
        """Keep a task whose end is durable."""
        text = _encode(task)
        if len(text) > _MAX_BYTES // 16 or task.id in self._tasks:
            return
        self._tasks[task.id] = (principal, None if task.ttl is None else task.created + task.ttl, text)
        self._bytes += len(text)
        while len(self._tasks) > _MAX_TASKS or self._bytes > _MAX_BYTES:
            self.evict(next(iter(self._tasks)))

    def find(self, id: str, principal: str) -> Task | None:
        """A task of this principal's, if it is kept and its time is not over."""
        found = self._tasks.get(id)
        if found is None or found[0] != principal:
            return None
        if found[1] is not None and found[1] <= now():
            self.evict(id)
            return None
        return _decode(found[2])

    def evict(self, id: str) -> None:
        """Keep a task no longer."""
        found = self._tasks.pop(id, None)
        if found is not None:
            self._bytes -= len(found[2])
