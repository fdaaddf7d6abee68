"""A worker that is stopped, or whose store fails."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from antiphon import Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.runtime.engine import Engine
from antiphon.runtime.tasks import claimed_task as claimed_task_module
from antiphon.runtime.tasks import repetition
from antiphon.runtime.tasks import worker as worker_module
from antiphon.runtime.tasks.worker import Worker
from tests.runtime.faulty_store import claimed_task, created_task, log_entries, open_faulty_store
from tests.support.polling import turns, until


def engine() -> Engine:
    server = Server("tests")

    @server.tool(task="optional")
    async def count() -> int:
        return 1

    return server.engine


def worker(store: Any) -> Worker:
    serving = engine()
    return Worker(
        store, Limits(), serving.registry.tool, serving.environment, tools=lambda: serving.registry.task_tools
    )


async def test_a_task_that_finishes_while_the_worker_stops_is_not_released() -> None:
    store, gate = await open_faulty_store(), asyncio.Event()
    mine, stopped = worker(store), []

    async def work() -> None:
        await gate.wait()
        stopped.append("the task")

    mine.adopt(await claimed_task(store), asyncio.create_task(work()))
    stopping = asyncio.create_task(mine.stop(within=30))
    await turns()
    assert (mine.has_room, mine.running) == (False, 1)
    gate.set()
    await stopping
    assert stopped == ["the task"]
    assert (mine.running, store.calls["release"]) == (0, 0)


async def test_a_task_that_cannot_be_released_is_left_until_its_lease_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    store = await open_faulty_store()
    mine, task = worker(store), asyncio.create_task(asyncio.Event().wait())
    mine.adopt(await claimed_task(store), task)  # type: ignore[arg-type]
    store.instead("release", StoreUnavailable("It is away."))
    await mine.stop(within=0)
    assert task.cancelled()
    assert (
        "Cannot release task count_1: It is away. Another worker can claim it when its lease ends."
        in caplog.messages
    )


async def test_a_claimed_task_without_a_log_is_ignored() -> None:
    store = await open_faulty_store()
    await created_task(store)
    store.instead("read", [])
    mine = worker(store)
    mine.start()
    await until(lambda: store.calls["claim"] > 1)
    assert (store.calls["read"], mine.running) == (1, 0)
    await mine.stop(within=0)
    assert await log_entries(store) == []


async def test_a_task_whose_outcome_cannot_be_written_is_left_to_another_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claimed_task_module, "STORE_OUTAGE_SECONDS", -1.0)
    store = await open_faulty_store()
    mine = worker(store)
    store.instead("append", StoreUnavailable("It is away."))
    task = await claimed_task(store)
    mine.run(task, engine().registry.tool("count"))
    await until(lambda: not mine.running)
    reason = (
        f"Stopped running task {task.task.id}: It is away. Another worker can claim it when its lease ends."
    )
    assert reason in caplog.messages
    await until(lambda: store.calls["append"] == 2)  # the first one failed, and the second one reports it
    ((_, report),) = await log_entries(store)
    assert (report["survived"], mine.finished_runs) == (True, {})


async def test_a_worker_continues_after_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (repetition, worker_module):
        monkeypatch.setattr(module, "STORE_RETRY_SECONDS", 0.0)
    store = await open_faulty_store()
    store.instead("claim", KeyError("a store that is not right"))
    await created_task(store)
    mine = worker(store)
    mine.start()
    await until(lambda: store.calls["append"])
    await mine.stop(within=1)
    assert "Unexpected error in the worker loop; continuing." in caplog.messages
    assert [kind for kind, _ in await log_entries(store)] == ["ended"]
