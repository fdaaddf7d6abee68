"""`ctx.event` and `Server.send_event`: tasks that go on when something has happened elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import BaseModel

from antiphon import Context, Failure, Limits, Server, Unanswered
from antiphon.runtime.tasks.events import send_event
from antiphon.store.contract import Store
from tests.waiting.support import Clock, client_of, status_of


class Payment(BaseModel):
    amount: float


def shop(store: Store, name: str = "shop") -> Server:
    server = Server(name, store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context, id: str, count: int = 1) -> list[float]:
        payments = [await ctx.event("payment", key=id, type=Payment) for _ in range(count)]
        return [payment.amount for payment in payments]

    @server.tool(task="required", poll_interval=0.02)
    async def patient(ctx: Context, id: str) -> str:
        try:
            await ctx.event("payment", key=id, within=timedelta(hours=1))
        except Unanswered as error:
            return error.message
        return "paid"

    return server


async def test_an_event_wakes_the_tasks_that_wait_for_it(store: Store) -> None:
    server = shop(store)
    async with client_of(server) as client:
        handles = [await client.submit("order", id="42") for _ in range(2)]
        other = await client.submit("order", id="43")
        for handle in handles:
            assert await status_of(handle, "Waiting") == "Waiting for the event 'payment'."
        assert await server.send_event("payment", "42", {"amount": 9.5})
        for handle in handles:
            assert (await handle.result(timeout=60)).data == [9.5]
        assert (await other.status()).status == "working"
        await other.cancel()


async def test_an_event_that_was_sent_before_is_received(store: Store) -> None:
    server = shop(store)
    async with client_of(server) as client:
        await server.send_event("payment", "42", {"amount": 1})
        assert (await (await client.submit("order", id="42")).result(timeout=60)).data == [1.0]


async def test_events_come_in_order_and_each_once(store: Store) -> None:
    server = shop(store)
    async with client_of(server) as client:
        handle = await client.submit("order", id="42", count=3)
        for amount in (1, 2, 3):
            assert await server.send_event("payment", "42", {"amount": amount}, id=f"e{amount}")
            assert not await server.send_event("payment", "42", {"amount": amount}, id=f"e{amount}")
        assert (await handle.result(timeout=60)).data == [1.0, 2.0, 3.0]


async def test_an_event_is_kept_for_a_time(store: Store, clock: Clock) -> None:
    server = shop(store)
    async with client_of(server) as client:
        await server.send_event("payment", "42", {"amount": 1}, keep=timedelta(minutes=15))
        clock.forward(minutes=16)
        handle = await client.submit("order", id="42")
        await status_of(handle, "Waiting")
        await handle.cancel()


async def test_an_event_is_kept_for_tasks_that_have_to_wait_for_a_worker(store: Store, clock: Clock) -> None:
    server = shop(store)
    async with client_of(server) as client:
        assert await server.send_event("payment", "42", {"amount": 1}, id="e", keep=0)
        assert not await server.send_event("payment", "42", {"amount": 1}, id="e", keep=0)
        clock.forward(minutes=9)
        handle = await client.submit("order", id="42")
        assert (await handle.result(timeout=60)).data == [1.0]


@pytest.mark.parametrize(("key", "data"), [("42", "x" * 1000), ("4" * 1000, None)])
async def test_an_event_has_a_limited_size(key: str, data: str | None) -> None:
    server = Server("shop", store="memory:", limits=Limits(max_event_bytes=500))

    @server.tool(task="required")
    async def order(ctx: Context) -> None:
        await ctx.event("payment", key="42")

    async with client_of(server):
        with pytest.raises(ValueError, match="The event 'payment' has .* bytes, and at most 500 are allowed"):
            await server.send_event("payment", key, data)
        assert await server.send_event("payment", "42", "x" * 400)


async def test_a_task_waits_for_an_event_no_longer_than_it_says(store: Store, clock: Clock) -> None:
    server = shop(store)
    async with client_of(server) as client:
        handle = await client.submit("patient", id="42")
        await status_of(handle, "Waiting")
        clock.forward(hours=1)
        text = (await handle.result(timeout=60)).text
        assert text == "The event 'payment' for '42' has not come in time."


async def test_an_event_that_does_not_fit_fails_the_call(store: Store) -> None:
    server = shop(store)
    async with client_of(server) as client:
        handle = await client.submit("order", id="42")
        await server.send_event("payment", "42", {"amount": "much"})
        with pytest.raises(Failure, match="The event 'payment' for '42' does not fit"):
            await handle.result(timeout=60)


async def test_an_event_of_another_server_is_not_received(store: Store) -> None:
    server = shop(store)
    async with client_of(server) as client:
        handle = await client.submit("order", id="42")
        await status_of(handle, "Waiting")
        assert await send_event(
            store, "other", "payment", "42", {"amount": 1}, id=None, keep=600, max_bytes=1000
        )
        await server.send_event("payment", "42", {"amount": 2})
        assert (await handle.result(timeout=60)).data == [2.0]


async def test_a_server_that_does_not_run_sends_nothing() -> None:
    with pytest.raises(RuntimeError, match="does not run"):
        await Server("shop").send_event("payment", "42")
