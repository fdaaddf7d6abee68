"""Caches tasks that finished in this process. A finished task changes only if an operator retries it.

Owns the bounds of the cache and the eviction. A hit saves a caller's request a query to the store.
"""

from __future__ import annotations

import msgspec

from antiphon.model.task import Task
from antiphon.runtime.tasks.clocks import now_ms

__all__ = ["FinishedTasks"]

MAX_TASKS = 1000
"""How many tasks the cache holds."""
MAX_BYTES = 4 * 1024 * 1024
"""How many bytes the cache holds."""
_MAX_TASK_BYTES = MAX_BYTES // 16
"""The size of the largest task that is cached."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Task).decode


class FinishedTasks:
    """A bounded cache of finished tasks, by id. It stores JSON, so that nobody can change a cached task."""

    __slots__ = ("_bytes", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, int | None, bytes]] = {}
        self._bytes = 0

    def add(self, task: Task, principal: str) -> None:
        """Add a task whose end is in the store."""
        text = _encode(task)
        if len(text) > _MAX_TASK_BYTES or task.id in self._tasks:
            return
        self._tasks[task.id] = (principal, None if task.ttl is None else task.created + task.ttl, text)
        self._bytes += len(text)
        while len(self._tasks) > MAX_TASKS or self._bytes > MAX_BYTES:
            self.evict(next(iter(self._tasks)))

    def find(self, id: str, principal: str) -> Task | None:
        """Return a principal's task, or `None` if it is not cached or has expired."""
        found = self._tasks.get(id)
        if found is None or found[0] != principal:
            return None
        if found[1] is not None and found[1] <= now_ms():
            self.evict(id)
            return None
        return _decode(found[2])

    def evict(self, id: str) -> None:
        """Remove a task from the cache."""
        found = self._tasks.pop(id, None)
        if found is not None:
            self._bytes -= len(found[2])
