"""A store in memory that fails on demand, and tasks in it that no worker runs."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from typing import Any

from antiphon.model.question import Elicit
from antiphon.model.task import Task, dump_questions
from antiphon.runtime.tasks.claimed_task import PHASES, ClaimedTask, head_of, now_ms
from antiphon.store import open_store
from antiphon.store.contract import Record

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class FaultyStore:
    """Wraps a store in memory; a test sets how the next calls of a method end."""

    def __init__(self) -> None:
        self._store = open_store("memory:")
        self._instead: dict[str, list[Any]] = defaultdict(list)
        self._afterwards: dict[str, list[Exception]] = defaultdict(list)
        self.calls: Counter[str] = Counter()

    def instead(self, method: str, *ends: Any) -> None:
        """Make the next calls do nothing and end with these values: errors are raised, others returned."""
        self._instead[method] += ends

    def afterwards(self, method: str, *errors: Exception) -> None:
        """Make the next calls take effect, and raise these errors nevertheless."""
        self._afterwards[method] += errors

    def __getattr__(self, name: str) -> Any:
        method = getattr(
            self._store, name
        )  # raises AttributeError for a method that a store in memory does not have

        async def work(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if self._instead[name]:
                return self._end(name)
            value = await method(*args, **kwargs)
            if self._afterwards[name]:
                raise self._afterwards[name].pop(0)
            return value

        def begin(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return self._end(name) if self._instead[name] else method(*args, **kwargs)

        return work if inspect.iscoroutinefunction(method) else begin

    def _end(self, name: str) -> Any:
        end = self._instead[name].pop(0)
        if isinstance(end, Exception):
            raise end
        return end


async def open_faulty_store() -> Any:
    """Return a new, open `FaultyStore`."""
    store = FaultyStore()
    await store.open()
    return store


async def created_task(store: Any, *, worker: str | None = None) -> tuple[Task, dict[str, Any], int]:
    """Create a task; return it with the first entry of its log and the token of the claim."""
    at = now_ms()
    task = Task(id="count_1", tool="count", created=at, updated=at, ttl=60_000)
    created = {"v": 1, "task": head_of(task), "arguments": {}, "principal": {"id": ""}, "journal": {}}
    record = Record(task.id, "", "count", "ready", 0, at, at, at + 60_000, head_of(task))
    claim = await store.create(record, [("created", created)], worker=worker, lease=60.0)
    return task, created, 0 if claim is None else claim.token


async def claimed_task(store: Any) -> ClaimedTask:
    """Create a task that this process has claimed."""
    task, created, token = await created_task(store, worker="me")
    return ClaimedTask(store, task, created, version=1, token=token, journal={}, responses={})


async def waiting_task(store: Any) -> Task:
    """Create a task that waits for a name."""
    task, _, _ = await created_task(store)
    asked = {"asks": dump_questions({"name": Elicit("Who?", SCHEMA)})}
    task = task.after("asked", asked, now_ms())
    await store.append(task.id, [("asked", asked)], expect=1, phase=PHASES[task.state], head=head_of(task))
    return task


async def log_entries(store: Any, id: str = "count_1") -> list[tuple[str, Any]]:
    """Return the entries of a task's log after the first."""
    return [(entry.kind, entry.data) for entry in await store.read(id, after=1)]
