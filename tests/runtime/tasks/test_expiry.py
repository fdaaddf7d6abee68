"""Ending tasks whose time is over."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.model.task import Task
from antiphon.runtime.tasks import expiry
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.expiry import delete_expired, end_overdue
from antiphon.runtime.tasks.records import head_of, task_of
from antiphon.store.contract import Record
from antiphon.store.memory import MemoryStore

BATCH = 10


async def overdue_task(store: MemoryStore, id: str, *, ago: int, head: Any = None) -> None:
    """Create a task whose time was over `ago` milliseconds ago."""
    at = now_ms() - ago
    task = Task(id=id, tool="count", created=at - 1000, updated=at - 1000, ttl=1000)
    head = head_of(task) if head is None else head
    record = Record(id, "", "count", "ready", 0, at - 1000, at - 1000, at, head)
    await store.create(record, [("created", {"task": head})])


async def test_tasks_that_this_version_cannot_read_do_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "BATCH_TASKS", BATCH)
    store = MemoryStore()
    await store.open()
    unreadable = {"state": "of a later version"}
    for number in range(2 * BATCH):
        await overdue_task(store, f"later-{number}", ago=2000, head=unreadable)
    await overdue_task(store, "mine", ago=1000)
    stopped: list[str] = []
    await end_overdue(store, stopped.append)
    assert stopped == ["mine"]
    for number in range(2 * BATCH):
        record = await store.get(f"later-{number}")
        assert record is not None
        assert (record.phase, record.version, record.head) == ("ready", 1, unreadable)
        assert record.expires is not None
        assert record.expires > now_ms()  # another look follows
    assert await store.overdue() == []


async def test_a_task_that_was_ended_is_not_overdue_any_more() -> None:
    store = MemoryStore()
    await store.open()
    await overdue_task(store, "mine", ago=1000)
    await end_overdue(store, lambda _: None)
    assert await store.overdue() == []
    (record,) = await store.expire()
    assert task_of(record).state == "cancelled"


class UnwritableStore(MemoryStore):
    """A store that cannot write some tasks, though it can write the others."""

    unwritable: frozenset[str] = frozenset()
    is_away = False

    async def append(self, id: str, *args: Any, **kwargs: Any) -> int:
        if self.is_away or id in self.unwritable:
            raise StoreUnavailable("Cannot be written.")
        return await super().append(id, *args, **kwargs)

    async def probe(self) -> None:
        if self.is_away:
            raise StoreUnavailable("Away.")


async def test_a_task_that_cannot_be_written_keeps_no_other_from_its_end_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = UnwritableStore()
    await store.open()
    store.unwritable = frozenset({"bad"})
    failing = frozenset[str]()
    stopped: list[str] = []
    await overdue_task(store, "bad", ago=2000)
    for number in range(3):
        await overdue_task(store, f"good-{number}", ago=1000)
        failing = await end_overdue(store, stopped.append, failing=failing)
        await delete_expired(store, lambda _: None)
        assert stopped == [f"good-{each}" for each in range(number + 1)]
        assert await store.get(f"good-{number}") is None
    assert caplog.text.count("Cannot end task bad, which has expired: Cannot be written.") == 1
    store.unwritable = frozenset()
    assert await end_overdue(store, stopped.append, failing=failing) == frozenset()
    assert stopped[-1] == "bad"


async def test_an_outage_is_not_the_fault_of_each_task(caplog: pytest.LogCaptureFixture) -> None:
    store = UnwritableStore()
    await store.open()
    await overdue_task(store, "mine", ago=1000)
    store.is_away = True
    with pytest.raises(StoreUnavailable, match="Away"):
        await end_overdue(store, lambda _: None)
    assert caplog.text == ""
