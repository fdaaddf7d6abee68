"""`Clock`: a test moves the time, and sleeps, deadlines, lifetimes and retries end without waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from antiphon import (
    Artifact,
    Client,
    Context,
    Limits,
    Result,
    Retry,
    Server,
    Text,
    Unanswered,
    wall_clock,
)
from antiphon.errors import TaskLost, TimedOut
from antiphon.testing import Clock


@pytest.fixture(params=["memory", "sqlite"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Server:
    store = None if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    return Server("shop", store=store, limits=Limits(call_timeout=100))


@pytest.fixture
def clock(server: Server) -> Iterator[Clock]:
    with Clock(server) as clock:
        yield clock


async def test_a_task_wakes_at_each_of_its_times(server: Server, clock: Clock) -> None:
    woken: list[timedelta] = []

    @server.tool(task="required", poll_interval=0.01)
    async def remind(ctx: Context) -> str:
        began = ctx.now()
        await ctx.sleep(hours=1)
        woken.append(ctx.now() - began)
        await ctx.sleep(hours=22)
        woken.append(ctx.now() - began)
        return "Monday"

    async with Client(server) as client:
        handle = await client.submit("remind")
        await clock.advance(minutes=59)
        assert woken == []
        await clock.advance(hours=23)
        assert (await handle.result()).text == "Monday"
    assert [round(each / timedelta(minutes=1)) for each in dict.fromkeys(woken)] == [60, 23 * 60]


async def test_a_question_that_nobody_answers_in_time(server: Server, clock: Clock) -> None:
    @server.tool(task="required", poll_interval=0.01)
    async def approve(ctx: Context) -> str:
        try:
            await ctx.elicit("May I?", bool, to="managers", within=timedelta(days=3))
        except Unanswered:
            return "nobody"
        return "somebody"

    async with Client(server) as client:
        handle = await client.submit("approve")
        await clock.advance(timedelta(days=2))
        assert (await handle.status()).status == "working"
        await clock.advance(timedelta(days=1))
        assert (await handle.result()).text == "nobody"


async def test_a_step_is_retried_after_its_delays(server: Server, clock: Clock) -> None:
    tries = 0

    async def ship() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionError("down")
        return "shipped"

    @server.tool(task="required", poll_interval=0.01)
    async def order(ctx: Context) -> str:
        return await ctx.step(ship, retry=Retry(attempts=5, first=600))

    async with Client(server) as client:
        handle = await client.submit("order")
        await clock.settle()
        assert tries == 1
        await clock.advance(hours=1)
        assert (await handle.result()).text == "shipped"
    assert tries == 3


async def test_a_task_is_deleted_when_its_lifetime_is_over(server: Server, clock: Clock) -> None:
    @server.tool(task="required", task_ttl=3600, poll_interval=0.01)
    async def count() -> int:
        return 3

    async with Client(server) as client:
        handle = await client.submit("count")
        assert (await handle.result()).data == 3
        await clock.advance(hours=2)
        with pytest.raises(TaskLost):
            await handle.status()


async def test_a_call_that_takes_too_long(server: Server, clock: Clock) -> None:
    @server.tool
    async def slow() -> None:
        await asyncio.sleep(1000)

    async with Client(server, timeout=50) as client:
        calling = asyncio.create_task(client.call("slow"))
        await clock.advance(seconds=40)
        assert not calling.done()
        await clock.advance(seconds=20)
        with pytest.raises(TimedOut):
            await calling


async def test_short_waits_follow_each_other(server: Server, clock: Clock) -> None:
    @server.tool(timeout=90)
    async def nap(ctx: Context) -> str:
        for _ in range(3):
            await asyncio.sleep(10)
        return "rested"

    async with Client(server) as client:
        calling = asyncio.create_task(client.call("nap"))
        await clock.advance(seconds=25)
        assert not calling.done()
        await clock.advance(seconds=6)
        assert calling.done()
        assert (await calling).text == "rested"


async def test_functions_in_threads_are_done_before_the_time_goes_on(server: Server, clock: Clock) -> None:
    @server.tool
    def compute() -> int:
        time.sleep(0.05)
        return 7

    async with Client(server) as client:
        calling = asyncio.create_task(client.call("compute"))
        await clock.settle()
        assert calling.done()
        assert (await calling).data == 7


async def test_a_function_that_blocks_its_thread_does_not_hold_the_clock(
    server: Server, clock: Clock
) -> None:
    unblocked = threading.Event()
    server.add_tool(unblocked.wait, name="block")
    async with Client(server) as client:
        calling = asyncio.create_task(client.call("block", timeout=30))
        await clock.advance(hours=1)
        unblocked.set()
        with pytest.raises(TimedOut):
            await calling


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_task_has_ended_when_the_time_was_moved(server: Server, clock: Clock, protocol: str) -> None:
    @server.tool(task="required", poll_interval=0.01)
    async def report(ctx: Context) -> Result:
        await ctx.sleep(days=1)
        text = await asyncio.to_thread(str, 7)
        return Result([Text(text)], artifact=Artifact({"rows": 1000 * ["row"]}))

    async with Client(server, protocol=protocol) as client:
        handle = await client.submit("report")
        await clock.advance(days=1)
        assert (await handle.status()).status == "completed"
        assert (await handle.result()).text.startswith("7")


async def test_the_time_of_day_is_the_real_one_afterwards(server: Server) -> None:
    with Clock(server) as clock:
        before = clock.now()
        await clock.advance(days=30)
        assert timedelta(days=30) <= clock.now() - before < timedelta(days=30, minutes=1)
        with pytest.raises(RuntimeError, match="one at a time"):
            Clock().__enter__()
    assert abs(wall_clock.now() - time.time()) < 1
    with pytest.raises(RuntimeError, match="not in use"):
        await clock.advance(1)


async def test_a_clock_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="whose tasks are in PostgreSQL"):
        Clock(Server("shop", store="postgresql://localhost/tasks")).__enter__()
    with Clock() as clock:
        for seconds in (-3600, float("inf"), float("nan")):
            with pytest.raises(ValueError, match=f"cannot move by {seconds:g} s: pass a finite duration"):
                await clock.advance(seconds)


def test_the_event_loop_has_to_be_the_one_of_asyncio() -> None:
    async def settle() -> None:
        with Clock() as clock, pytest.raises(RuntimeError, match="an event loop of uvloop"):
            await clock.settle()

    uvloop.run(settle())
