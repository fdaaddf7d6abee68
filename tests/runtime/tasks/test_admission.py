"""The limits of tasks that wait hold in a burst of calls, and tasks that are over make room."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Limits, Principal, Server
from antiphon.errors import RequestError
from antiphon.runtime.tasks.admission import Admission
from antiphon.store import open_store
from antiphon.store.contract import Record, Store, TaskFilter
from antiphon.store.memory import MemoryStore
from tests.support.polling import turns

BURST = 60


def record(principal: str) -> Record:
    """The record of a new task."""
    return Record("work_1", principal, "work", "ready", 1, 0, 0, None, {})


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/tasks.db")


def shop(store: Store, limits: Limits, **options: Any) -> Server:
    """A server that runs no tasks."""
    server = Server("shop", store=store, limits=limits)
    server.configure(run_tasks=False)

    @server.tool(task="required", **options)
    async def work() -> str:
        return "done"

    @server.tool(task="required")
    async def other() -> str:
        return "done"

    return server


async def accepted(client: Client, tool: str = "work") -> int:
    """Submit many tasks at once, and return how many are accepted."""
    outcomes = await asyncio.gather(*(client.submit(tool) for _ in range(BURST)), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(error, RequestError) and "at most" in str(error) for error in refused)
    return BURST - len(refused)


@pytest.mark.parametrize(
    ("limits", "options", "most"),
    [
        (Limits(max_queued_tasks_per_principal=5), {}, 5),
        (Limits(max_queued_tasks=10, principal_share=1.0), {}, 10),
        (Limits(max_queued_tasks=10, principal_share=0.5), {}, 5),
        (Limits(), {"max_queued": 7}, 7),
    ],
)
async def test_a_burst_does_not_exceed_a_limit(
    store: Store, limits: Limits, options: dict[str, Any], most: int
) -> None:
    server = shop(store, limits, **options)
    async with Client(server, principal=Principal("ada")) as client:
        assert await accepted(client) == most
        assert await accepted(client) == 0
        page = await store.list(None, limit=1000, filter=TaskFilter(phase="ready"))
        for record in page.records[:3]:
            await client.task(record.id).cancel()
        assert await accepted(client) == 3


async def test_one_principal_leaves_room_for_another_one(store: Store) -> None:
    server = shop(store, Limits(max_queued_tasks_per_principal=5))
    async with (
        Client(server, principal=Principal("ada")) as ada,
        Client(server, principal=Principal("bob")) as bob,
    ):
        assert await asyncio.gather(accepted(ada), accepted(bob)) == [5, 5]


async def test_one_tool_leaves_room_for_another_one(store: Store) -> None:
    async with Client(shop(store, Limits(), max_queued=2), principal=Principal("ada")) as client:
        assert await accepted(client) == 2
        assert await accepted(client, "other") == BURST


async def test_tasks_that_are_created_while_the_store_counts_refuse_nothing() -> None:
    store = MemoryStore()
    tool = shop(store, Limits()).engine.registry.tool("work")
    await store.open()
    admission, count, may_count = Admission(store, Limits()), store.count, asyncio.Event()
    admission.finish(await admission.reserve(record("ada"), tool, 0), 0, created=True)
    pending = [await admission.reserve(record("ada"), tool, 0) for _ in range(300)]

    async def wait_and_count(*values: Any, **options: Any) -> int:
        await may_count.wait()
        return await count(*values, **options)

    store.count = wait_and_count  # type: ignore[method-assign]
    for reserved in pending[:100]:
        admission.finish(reserved, 0, created=True)
    last = asyncio.create_task(admission.reserve(record("ada"), tool, 0))
    await turns()
    for reserved in pending[100:]:
        admission.finish(reserved, 0, created=True)
    may_count.set()
    admission.finish(await last, 0, created=True)


async def test_one_task_waits_for_a_count_and_the_others_go_on() -> None:
    store = MemoryStore()
    tool = shop(store, Limits()).engine.registry.tool("work")
    await store.open()
    admission, count, may_count, counts = Admission(store, Limits()), store.count, asyncio.Event(), 0

    async def wait_and_count(*values: Any, **options: Any) -> int:
        nonlocal counts
        counts += 1
        await may_count.wait()
        return await count(*values, **options)

    for _ in range(50):
        admission.finish(await admission.reserve(record(""), tool, 0), 0, created=True)
    store.count = wait_and_count  # type: ignore[method-assign]
    first = asyncio.create_task(admission.reserve(record(""), tool, 0))
    await turns()
    second = asyncio.create_task(admission.reserve(record(""), tool, 0))  # the other total is due too
    await turns()
    for _ in range(49):
        admission.finish(await admission.reserve(record(""), tool, 0), 0, created=True)
    assert counts == 2
    assert not first.done()
    may_count.set()
    for reserving in (first, second):
        admission.finish(await reserving, 0, created=True)


async def test_a_task_that_cannot_be_created_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    create = store.create

    async def fail(*_: Any, **__: Any) -> None:
        raise ValueError("broken")

    async with Client(
        shop(store, Limits(max_queued_tasks_per_principal=5)), principal=Principal("ada")
    ) as client:
        monkeypatch.setattr(store, "create", fail)
        for _ in range(20):
            with pytest.raises(RequestError):
                await client.submit("work")
        monkeypatch.setattr(store, "create", create)
        assert await accepted(client) == 5
