"""The workers of a store in the console, its queue, and the plots."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from antiphon import Client, Context, Server
from antiphon.store.memory import MemoryStore
from tests.cli.stored_tasks import HOUR, create_task
from tests.console.test_task_api import until_shown
from tests.console.test_tasks_api import console_of

WORKERS, HOURS = "/api/stores/s/workers", "/api/stores/s/hours"
NOW = time.time()


async def test_workers_answer_and_the_queue_is_counted() -> None:
    store, gate = MemoryStore(), asyncio.Event()
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.05)
    async def hold(ctx: Context) -> str:
        await gate.wait()
        return "held"

    async with Client(server) as client, console_of(store) as console:
        handle = await client.submit("hold", {})
        await create_task(store, "queued1", age=HOUR, tool="unknown")
        await create_task(store, "waiting1", age=HOUR)
        await until_shown(console, WORKERS, lambda view: bool(view["workers"]) and not view["isRefreshing"])
        view = await console.get(WORKERS)
        [[name, of, tools, running, started, seen]] = view["workers"]
        assert (name["status"][0], of, tools) == ("working", "shop", "hold")
        assert f"process {os.getpid()}" in name["note"]
        assert running[0].startswith("1 of ")
        assert started["age"] <= seen["ago"]
        figures = {label: value for value, label in view["figures"]}
        assert (figures["running"], figures["queued"]) == (1, 1)
        assert figures["age of the queue"]["age"]
        assert figures["waiting for answers, times or events"] == 1
        gate.set()
        await handle.result()


async def test_a_worker_that_does_not_answer_is_known_by_its_leases() -> None:
    store = MemoryStore()
    await store.open()
    await create_task(store, "running1", age=HOUR, worker="old")
    async with console_of(store) as console:
        [[name, _, tools, running, _, seen]] = (await console.get(WORKERS))["workers"]
        assert name["status"] == ["working", "w"]
        assert "does not answer" in name["note"]
        assert (tools, running, seen) == ("echo", 1, "holds leases")
    await store.close()


async def test_the_plots_have_every_hour_and_failures_lead_to_their_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    store = MemoryStore()
    await store.open()
    for number in range(3):
        await create_task(store, f"done{number}", age=2 * HOUR, tool="pay")
    await create_task(store, "failed1", age=HOUR, tool="ship it")
    async with console_of(store) as console:
        found = await console.get(HOURS, hours=4)
        ended, created = found["plots"]
        assert [words for _, words in ended["series"]] == ["3 done", "0 cancelled", "1 failed"]
        assert (created["series"], created["most"]) == ([["created", "4 created"]], "at most 3 an hour")
        first = int(NOW * 1000) // HOUR * HOUR - 3 * HOUR
        assert [hour["at"] for hour in created["hours"]] == [first + at * HOUR for at in range(4)]
        assert max(height for hour in created["hours"] for _, height in hour["bars"]) == 100
        assert [numbers for _, *numbers in created["rows"]] == [[3], [1]]
        assert found["tools"][0][0] == "ship it"
        assert found["tools"][0][-1] == {"link": ["tasks?status=failed&tool=ship+it&store=s", "1"]}
        only = await console.get(HOURS, hours=4, tool="pay")
        assert [words for _, words in only["plots"][0]["series"]] == ["3 done", "0 cancelled", "0 failed"]
        assert len(only["tools"]) == 2
    await store.close()


@pytest.mark.parametrize("hours", ["0", "x", "-1", "337", "99999"])
async def test_a_time_that_is_not_kept_is_refused(hours: str) -> None:
    store: Any = MemoryStore()
    await store.open()
    async with (
        console_of(store) as console,
        console.http.get(console.url + HOURS, params={"hours": hours}) as response,
    ):
        assert response.status == 400
    await store.close()
