"""The lifetime of tasks: on a running server and after a restart, in every state."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Limits, Server
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.promises.tooling import STORES, Name, Workshop, at_work, store_of
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Bare

GONE = {"code": -32602, "message": "Failed to retrieve task: Task not found"}


async def gone_after(client: Bare, id: str) -> float:
    """Return the time at which a task was gone."""
    async with asyncio.timeout(60):
        while True:
            frame = (await client.ask("tasks/get", {"taskId": id})).frame
            if "error" in frame:
                assert frame["error"] == GONE
                return time.time()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tool", ["add", "ask", "long"])
async def test_a_task_is_gone_when_its_time_is_over(port: int, workshop: Workshop, tool: str) -> None:
    client, began = Bare(port), time.time()
    id = (await begin(client, tool, 1200, **({"a": 1, "b": 2} if tool == "add" else {})))["taskId"]
    if tool != "long":
        await reach(client, id, "completed", "input_required")
    assert 1.19 <= await gone_after(client, id) - began < 20
    assert (await client.ask("tasks/list")).result["tasks"] == []
    await until(lambda: not workshop.server.engine.tasks._worker._running)  # type: ignore[union-attr]


async def test_a_running_task_is_stopped_when_it_expires(kind: str, tmp_path: Path) -> None:
    limits = Limits(
        lease_seconds=60.0, drain_timeout=0.2
    )  # so that nobody notices by a lease that cannot be renewed
    async with at_work(kind, tmp_path, limits=limits) as (workshop, address):
        client, began = Bare(address.port), time.time()
        id = (await begin(client, "long", 1000))["taskId"]
        waiting = asyncio.create_task(client.ask("tasks/result", {"taskId": id}))
        await until(lambda: workshop.stopped["long"])
        assert 0.9 <= time.time() - began < 30
        assert (await waiting).error == GONE


async def test_whoever_waits_for_a_task_hears_that_it_is_gone(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "long", 500))["taskId"]
    began = time.time()
    assert (await client.ask("tasks/result", {"taskId": id})).error == GONE
    assert time.time() - began < 30


async def test_what_expired_leaves_nothing_in_the_store(port: int, workshop: Workshop) -> None:
    client = Bare(port)
    ids = [(await begin(client, "add", 300, a=1, b=2))["taskId"] for _ in range(5)]
    kept = (await begin(client, "add", a=1, b=2))["taskId"]
    await reach(client, kept, "completed")
    async with asyncio.timeout(60):
        for id in ids:
            await gone_after(client, id)
            while await workshop.store.read(id):  # noqa: ASYNC110 - a log makes no sound when it goes
                await asyncio.sleep(0.05)
    assert len(await workshop.store.read(kept)) == 2


async def test_the_time_goes_on_while_no_server_runs(tmp_path: Path) -> None:
    began = time.time()
    async with at_work("sqlite", tmp_path) as (_, address):
        client = Bare(address.port)
        short = (await begin(client, "add", 1000, a=1, b=2))["taskId"]
        expires = time.time() + 1.0
        longer = (await begin(client, "ask", 6000))["taskId"]
        await reach(client, longer, "input_required")
    await asyncio.sleep(max(0.0, expires + 0.1 - time.time()))
    async with at_work("sqlite", tmp_path) as (_, address):
        client = Bare(address.port)
        assert (await client.ask("tasks/get", {"taskId": short})).error == GONE
        await reach(client, longer, "input_required")
        assert 5.99 <= await gone_after(client, longer) - began < 30


@asynccontextmanager
async def tools_with(kind: str, folder: Path, **options: Any) -> AsyncIterator[int]:
    server = Server("ttl", store=store_of(kind, folder))

    @server.tool(task="optional", **options)
    async def tool() -> str:
        """Is done at once."""
        return "done"

    async with serving(server) as address:
        yield address.port


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    ("ttl", "wish", "given"),
    [
        (60, None, None),
        (60, 5_000, 5_000),
        (60, 90_000, 90_000),
        (None, None, None),
        (None, 90_000, 90_000),
        (None, 2**62, 3_162_240_000_000),
    ],
)
async def test_a_caller_may_ask_for_a_lifetime_from_the_creation_on(
    kind: str, tmp_path: Path, ttl: float | None, wish: int | None, given: int | None
) -> None:
    async with tools_with(kind, tmp_path, task_ttl=ttl, poll_interval=2.5) as port:
        task = await begin(Bare(port), "tool", wish)
        assert (task["ttl"], task["pollInterval"]) == (given, 2500)
        if wish is None:
            task = await begin(Patient(port), "tool")
            assert (task["ttlMs"], task["pollIntervalMs"]) == (given, 2500)


async def test_a_wish_that_is_no_time_is_refused(port: int) -> None:
    for wish in ("soon", 1.5, True):
        refused = await Bare(port).ask("tools/call", {"name": "long", "task": {"ttl": wish}})
        assert refused.error["code"] == -32602


@pytest.mark.parametrize("wish", [0, -1, -60_000])
async def test_a_lifetime_that_is_not_positive_is_refused(port: int, wish: int) -> None:
    for tool, modes in (("long", {}), ("add", {"responseModes": ["immediate"]})):
        params = {"name": tool, "arguments": {"a": 1, "b": 2}, "task": {"ttl": wish, **modes}}
        refused = (await Bare(port).ask("tools/call", params)).error
        assert refused["code"] == -32602
        assert refused["message"].startswith(f"Invalid ttl {wish}: use a positive number of milliseconds")
    assert (await Bare(port).ask("tasks/list")).result["tasks"] == []


# Without a wish: from the end on


@pytest.mark.parametrize("kind", STORES)
async def test_a_task_is_kept_until_it_has_ended_and_then_for_its_ttl(kind: str, tmp_path: Path) -> None:
    server, gate = Server("ttl", store=store_of(kind, tmp_path)), asyncio.Event()

    @server.tool(task="required", task_ttl=3.0, poll_interval=0.05)
    async def wait(ctx: Context, ask: bool) -> str:
        """Take longer than the task is kept."""
        if ask:
            await ctx.elicit("Who?", Name, key="who")
        else:
            await gate.wait()
        return "done"

    async with serving(server) as address:
        client = Patient(address.port)
        began = time.time()
        running, asking = [(await begin(client, "wait", ask=ask))["taskId"] for ask in (False, True)]
        await asyncio.sleep(3.7)  # longer than the ttl, and two ticks of the worker
        assert (await look(client, running))["status"] == "working"
        assert (await look(client, asking))["ttlMs"] is None
        gate.set()
        await answer(client, asking, who="Ada")
        ended = await asyncio.gather(*(reach(client, id, "completed") for id in (running, asking)))
        for task in ended:
            assert 6700 <= task["ttlMs"] <= 1000 * (time.time() - began) + 3001
        for id in (running, asking):
            await gone_after(client, id)


async def test_expiry_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    async with at_work("sqlite", tmp_path) as (_, address):
        client = Bare(address.port)
        ids = [
            (await begin(client, tool, 300, **arguments))["taskId"]
            for tool, arguments in (("long", {}), ("ask", {}), ("add", {"a": 1, "b": 2}))
        ]
        for id in ids:
            await gone_after(client, id)
        running, asking, ended = ids

        def says(text: str) -> bool:
            return any(text in line for line in caplog.messages)

        await until(lambda: says(f"Deleted task {ended}: its lifetime is over."))
        await until(lambda: says(f"Task {running} has expired after"))
        await until(lambda: says(f"Task {asking} has expired after"))
    assert says("it was running, and its lifetime was 0.3 s.")
    assert says("it was waiting for an answer, and its lifetime was 0.3 s.")
