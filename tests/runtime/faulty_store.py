"""A store in memory that fails on demand, and tasks in it that no worker runs."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, cast

from antiphon.model.identity import ANONYMOUS
from antiphon.model.question import Elicit
from antiphon.model.task import Task, dump_questions
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.records import head_of, phase_of, task_of
from antiphon.store.contract import Record
from antiphon.store.memory import MemoryStore
from tests.support.polling import until

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class FaultyStore:
    """Wraps a store in memory; a test sets how the next calls of a method end.

    `inner` is the store itself, whose calls neither fail nor count.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.inner = MemoryStore(clock=clock)
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
            self.inner, name
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
    return ClaimedTask(
        store, task, created, owner=ANONYMOUS, version=1, token=token, journal={}, responses={}
    )


async def queued_task(
    store: Any,
    tool: str,
    arguments: dict[str, Any] | None = None,
    *,
    id: int | None = None,
    lost: int = 0,
    group: int = 0,
    **more: Any,
) -> str:
    """Create a task that no worker holds, after so many workers have claimed it and died; return its id.

    `group` is how many tasks that had lost a worker ran in the last of them.
    """
    at = now_ms()
    task = Task(id=f"{tool}_{at if id is None else id}", tool=tool, created=at, updated=at)
    principal = {"id": ""}
    created = {"v": 1, "task": head_of(task), "arguments": arguments or {}, "principal": principal, **more}
    record = Record(task.id, "", tool, "ready", 0, at, at, None, head_of(task))
    await store.create(record, [("created", created)])
    await lose(store, task.id, lost, group)
    return task.id


async def lose(store: Any, id: str, times: int = 1, group: int = 0) -> None:
    """Claim a task and begin to run it, as workers that die at once do, so many times."""
    for earlier in range(times):
        claims = {claim.record.id: claim for claim in await store.claim("dead", lease=0.0, limit=100)}
        if earlier:
            record, data = claims[id].record, {"attempt": earlier, "by": claims[id].token}
            if group:
                data["group"] = group
            await store.append(
                record.id, [("recorded", data)], expect=record.version, phase="ready", head=record.head
            )


async def claim_in_vain(store: Any, times: int) -> None:
    """Claim the tasks that are ready, as workers do whose leases end before they begin."""
    for _ in range(times):
        assert await store.claim("late", lease=0.0, limit=10)


async def end_of(store: Any, id: str) -> Task:
    """Wait until a task has ended, and return it."""

    async def ended() -> Task | None:
        task = task_of(await store.get(id))
        return task if task.has_ended else None

    return cast(Task, await until(ended))


async def waiting_task(store: Any) -> Task:
    """Create a task that waits for a name."""
    task, _, _ = await created_task(store)
    asked = {"asks": dump_questions({"name": Elicit("Who?", SCHEMA)})}
    task = task.after("asked", asked, now_ms())
    await store.append(task.id, [("asked", asked)], expect=1, phase=phase_of(task), head=head_of(task))
    return task


async def log_entries(store: Any, id: str = "count_1") -> list[tuple[str, Any]]:
    """Return the entries of a task's log after the first."""
    return [(entry.kind, entry.data) for entry in await store.read(id, after=1)]
