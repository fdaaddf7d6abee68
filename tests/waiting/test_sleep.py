"""`ctx.sleep` and `ctx.sleep_until`: the task is parked, and wakes when the time has come."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from antiphon import Context, Failure, Server
from antiphon.store.contract import Store
from tests.support.polling import until
from tests.waiting.support import Clock, client_of, is_parked, look_for_due, status_of


async def test_a_task_sleeps_for_a_day_without_a_worker(store: Store, clock: Clock) -> None:
    server, runs = Server("shop", store=store), 0

    @server.tool(task="required", poll_interval=0.02)
    async def remind(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        await ctx.sleep(hours=24)
        return "Monday"

    async with client_of(server) as client:
        handle = await client.submit("remind")
        assert "Sleeping until 2" in await status_of(handle, "Sleeping")
        assert (await handle.status()).status == "working"
        assert server.engine.tasks.running == 0
        clock.forward(hours=23)
        await look_for_due(server)
        assert await is_parked(store, handle)
        assert runs == 1
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).text == "Monday"
    assert runs == 2


async def test_the_time_counts_from_the_first_run(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def twice(ctx: Context) -> str:
        began = ctx.now()
        await ctx.sleep(timedelta(minutes=10))
        await ctx.sleep_until(began + timedelta(minutes=30))
        return "done"

    async with client_of(server) as client:
        handle = await client.submit("twice")
        first = await status_of(handle, "Sleeping")

        async def sleeps_again() -> bool:
            return await status_of(handle, "Sleeping") != first

        clock.forward(minutes=10)
        await until(sleeps_again)
        clock.forward(minutes=20)
        assert (await handle.result(timeout=60)).text == "done"


async def test_a_short_sleep_needs_no_task(store: Store) -> None:
    server, runs = Server("shop", store=store), 0

    @server.tool
    async def nap(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        await ctx.sleep(0.01)
        return runs

    async with client_of(server) as client:
        assert (await client.call("nap")).data == 1


async def test_a_call_that_cannot_be_a_task_says_so(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool
    async def day(ctx: Context) -> None:
        await ctx.sleep(days=1)

    async with client_of(server) as client:
        with pytest.raises(Failure, match="has to wait, and only a task can do that"):
            await client.call("day")


async def test_a_call_becomes_a_task_when_it_has_to_sleep(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="optional", answer_within=60, poll_interval=0.02)
    async def day(ctx: Context) -> str:
        await ctx.sleep(days=1)
        return "later"

    async with client_of(server) as client:
        handle = await client.submit("day")
        await status_of(handle, "Sleeping")
        clock.forward(days=1)
        assert (await handle.result(timeout=60)).text == "later"


async def test_a_sleeping_task_is_cancelled_and_unwound(store: Store) -> None:
    server, ended = Server("shop", store=store), asyncio.Event()

    @server.tool(task="required", poll_interval=0.02)
    async def day(ctx: Context) -> None:
        try:
            await ctx.sleep(days=1)
        finally:
            if not ctx.suspending:
                ended.set()

    async with client_of(server) as client:
        handle = await client.submit("day")
        await status_of(handle, "Sleeping")
        assert not ended.is_set()
        await handle.cancel()
        async with asyncio.timeout(60):
            await ended.wait()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda ctx: ctx.sleep(-1), "must not be negative"),
        (lambda ctx: ctx.sleep(float("nan")), "number of seconds"),
        (lambda ctx: ctx.sleep(hours=-2), "must not be negative"),
        (lambda ctx: ctx.sleep_until(datetime.now()), "time zone"),
    ],
)
async def test_times_that_cannot_be_are_refused(store: Store, act: object, message: str) -> None:
    server = Server("shop", store=store)

    @server.tool
    async def odd(ctx: Context) -> str:
        with pytest.raises(ValueError, match=message):
            await act(ctx)  # type: ignore[operator]
        return "refused"

    async with client_of(server) as client:
        assert (await client.call("odd")).text == "refused"


async def test_a_step_cannot_sleep(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool
    async def odd(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match="A step cannot sleep"):
            await ctx.step(ctx.sleep, 1)
        return "refused"

    async with client_of(server) as client:
        assert (await client.call("odd")).text == "refused"


async def test_a_time_that_has_passed_is_no_wait(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool
    async def past(ctx: Context) -> str:
        await ctx.sleep_until(datetime(2020, 1, 1, tzinfo=UTC))
        return "at once"

    async with client_of(server) as client:
        assert (await client.call("past")).text == "at once"
