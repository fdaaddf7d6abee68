"""Branches of a task that wait side by side: none is forgotten, and none holds up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from antiphon import Context, Principal, Retry, Server, Unanswered
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.support.polling import until
from tests.waiting.support import Clock, accept, asked, client_of, inbox, is_parked, status_of

BOB = Principal("bob", scopes=frozenset({"finance"}))


@pytest.mark.parametrize("first", ["paid", "approved"])
async def test_a_task_goes_on_with_whichever_comes_first(store: Store, clock: Clock, first: str) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        approved = asyncio.create_task(ctx.elicit("Go?", bool, to="finance", key="go"))
        paid = asyncio.create_task(ctx.event("paid", key="1"))
        done, rest = await asyncio.wait({approved, paid}, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await ctx.sleep(hours=1)
        return "approved" if approved in done else "paid"

    async with client_of(server) as client:
        handle = await client.submit("order")
        await status_of(handle, "Waiting for the event 'paid'.")
        (item,) = await asked(server, BOB)
        if first == "paid":
            await server.send_event("paid", "1", 5)
        else:
            await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        assert (await status_of(handle, "Sleeping")).startswith("Sleeping")  # and waits for nothing else
        assert (await inbox(server).list(BOB)).items == ()
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).text == first


async def test_all_of_several_waits_are_registered(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[Any]:
        paid = asyncio.create_task(ctx.event("paid", key="1"))
        packed = asyncio.create_task(ctx.event("packed", key="1"))
        await ctx.sleep(hours=1)  # the function itself waits while it has not begun the others
        return [await paid, await packed]

    async with client_of(server) as client:
        handle = await client.submit("order")
        message = await status_of(handle, "Sleeping")
        assert "Waiting for the event 'paid'. Waiting for the event 'packed'." in message
        await server.send_event("packed", "1", "box")
        await server.send_event("paid", "1", 5)

        async def has_received_both() -> bool:
            return "Waiting" not in ((await handle.status()).message or "Waiting")

        await until(has_received_both)
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).data == [5, "box"]


async def _nap(ctx: Context) -> None:
    await ctx.sleep(0.05)


async def _retry(ctx: Context) -> None:
    await ctx.step(_fail_once(), key="unstable", retry=Retry(first=0.02))


def _fail_once() -> Callable[[], Awaitable[int]]:
    calls = 0

    async def unstable() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("away")
        return calls

    return unstable


async def _give_up(ctx: Context) -> None:
    with pytest.raises(Unanswered):
        await ctx.elicit("Anybody?", bool, to="nobody", key="nobody", within=0)


async def _emit(ctx: Context) -> None:
    for number in range(3):
        await ctx.emit(str(number))


@pytest.mark.parametrize("work", [_nap, _retry, _give_up, _emit])
async def test_a_branch_goes_on_beside_a_long_wait(store: Store, clock: Clock, work: Any) -> None:
    server, done = Server("shop", store=store), asyncio.Event()

    async def finish() -> None:
        done.set()

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        async def beside() -> None:
            await work(ctx)
            await ctx.step(finish)

        await asyncio.gather(ctx.sleep(hours=1), beside())
        return "both"

    async with client_of(server) as client:
        handle = await client.submit("order")
        await until(done.is_set)
        await until(lambda: is_parked(store, handle))  # a lease might end when the clock jumps
        await status_of(handle, "Sleeping")
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).text.endswith("both")


async def test_a_long_replay_beside_a_wait_is_not_cut_off(clock: Clock) -> None:
    server, runs = Server("shop", store=MemoryStore()), 0

    def count(number: int) -> int:
        return number

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> Any:
        nonlocal runs
        runs += 1

        async def steps() -> Any:
            for number in range(2000):
                await ctx.step(count, number)
            return await ctx.event("paid", key="1")

        return (await asyncio.gather(ctx.sleep(hours=2), ctx.sleep(hours=1), steps()))[2]

    async with client_of(server) as client:
        handle = await client.submit("order")
        message = await status_of(handle, "'paid'")
        clock.forward(hours=1)

        async def has_run_again() -> bool:
            return runs > 1 and (await handle.status()).message != message

        await until(has_run_again)
        assert "'paid'" in ((await handle.status()).message or "")
        await handle.cancel()
