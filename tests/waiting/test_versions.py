"""Events and answers of others that a new version of a tool reads with another type: the task waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from antiphon import Context, Principal, Server
from tests.support.leases import end_leases
from tests.support.polling import until
from tests.waiting.support import accept, asked, client_of, inbox, status_of

pytestmark = pytest.mark.usefixtures("quick_claims")

BOB = Principal("bob", scopes=frozenset({"finance"}))
MESSAGE = "The task waits for a server of the version that began it."
refunds: list[str] = []


class Payment(BaseModel):
    amount: float


class DatedPayment(Payment):
    date: str


@pytest.fixture(autouse=True)
def forget() -> None:
    refunds.clear()


def shop(directory: Path, type: Any) -> Server:
    """A version of the shop, whose tools read what they wait for as this type."""
    server = Server("shop", store=f"sqlite:///{directory}/tasks.db")

    def refund(why: str) -> None:
        refunds.append(why)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        try:
            paid = await ctx.event("payment", key="42", type=type)
            await ctx.event("shipped", key="42")
        except Exception as error:
            await ctx.step(refund, str(error))
            return "refunded"
        return str(paid)

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context) -> str:
        try:
            size = await ctx.elicit("How much?", type, to="finance", key="size")
            await ctx.event("shipped", key="42")
        except Exception as error:
            await ctx.step(refund, str(error))
            return "refunded"
        return str(size)

    return server


async def test_an_event_that_a_new_version_cannot_read_stops_the_run(tmp_path: Path) -> None:
    old, new = shop(tmp_path, Payment), shop(tmp_path, DatedPayment)
    async with client_of(old) as client:
        handle = await client.submit("order")
        await old.send_event("payment", "42", {"amount": 5})
        await status_of(handle, "Waiting for the event 'shipped'")
    async with client_of(new) as client:
        await new.send_event("shipped", "42")
        await status_of(client.task(str(handle.id)), MESSAGE)
    await end_leases(f"sqlite:///{tmp_path}/tasks.db")  # as if the delay of the task were over
    async with client_of(shop(tmp_path, Payment)) as client:
        assert (await client.task(str(handle.id)).result(timeout=60)).text == "amount=5.0"
    assert refunds == []


async def test_an_event_that_never_fitted_is_the_same_failure_in_every_run(tmp_path: Path) -> None:
    server = Server("shop", store=f"sqlite:///{tmp_path}/tasks.db")

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        try:
            await ctx.event("payment", key="42", type=Payment)
        except Exception as error:
            await ctx.event("shipped", key="42")
            return str(error)
        return "paid"

    async with client_of(server) as client:
        handle = await client.submit("order")
        await server.send_event("payment", "42", {"amount": "much"})
        await status_of(handle, "Waiting for the event 'shipped'")
        await server.send_event("shipped", "42")
        assert "does not fit" in (await handle.result(timeout=60)).text


async def test_an_event_that_only_a_new_version_can_read_stops_the_run(tmp_path: Path) -> None:
    def version(type: Any) -> Server:
        server = Server("shop", store=f"sqlite:///{tmp_path}/tasks.db")

        def refund() -> None:
            refunds.append("refund")

        @server.tool(task="required", poll_interval=0.02)
        async def order(ctx: Context) -> str:
            try:
                await ctx.event("payment", key="42", type=type)
            except Exception:
                await ctx.step(refund)
                await ctx.event("shipped", key="42")
                return "refunded"
            await ctx.event("shipped", key="42")
            return "paid"

        return server

    old, new = version(DatedPayment), version(Payment)
    async with client_of(old) as client:
        handle = await client.submit("order")
        await old.send_event("payment", "42", {"amount": 5})
        await status_of(handle, "Waiting for the event 'shipped'")
    async with client_of(new) as client:
        await new.send_event("shipped", "42")
        await status_of(client.task(str(handle.id)), MESSAGE)
    await end_leases(f"sqlite:///{tmp_path}/tasks.db")  # as if the delay of the task were over
    async with client_of(version(DatedPayment)) as client:
        assert (await client.task(str(handle.id)).result(timeout=60)).text == "refunded"
    assert refunds == ["refund"]


async def test_an_answer_of_others_that_a_new_version_does_not_accept_stops_the_run(tmp_path: Path) -> None:
    old, new = shop(tmp_path, Literal["small", "large"]), shop(tmp_path, Literal["small", "medium"])
    async with client_of(old) as client:
        handle = await client.submit("expense")
        (item,) = await asked(old, BOB)
        await inbox(old).answer(BOB, item.task_id, item.key, accept(value="large"))
        await status_of(handle, "Waiting for the event 'shipped'")
    async with client_of(new) as client:
        await new.send_event("shipped", "42")
        await status_of(client.task(str(handle.id)), MESSAGE)
        assert (await inbox(new).list(BOB)).items == ()
    await end_leases(f"sqlite:///{tmp_path}/tasks.db")  # as if the delay of the task were over
    async with client_of(shop(tmp_path, Literal["small", "large"])) as client:
        assert (await client.task(str(handle.id)).result(timeout=60)).text == "large"
    assert refunds == []


async def test_an_answer_of_others_that_no_run_has_used_is_asked_for_again(tmp_path: Path) -> None:
    old, new = shop(tmp_path, Literal["small", "large"]), shop(tmp_path, Literal["small", "medium"])
    async with client_of(old) as client:
        handle = await client.submit("expense")
        (item,) = await asked(old, BOB)
    async with client_of(new) as client:
        # It was asked by the old version, and is answered as that one accepted.
        await inbox(new).answer(BOB, item.task_id, item.key, accept(value="large"))

        async def says_why() -> bool:
            items = (await inbox(new).list(BOB)).items
            return bool(items) and "does not fit" in items[0].question.message

        await until(says_why)
        await client.task(str(handle.id)).cancel()
    assert refunds == []


async def test_an_answer_of_others_that_did_not_fit_is_not_used_by_a_version_that_it_fits(
    tmp_path: Path,
) -> None:
    old, new = shop(tmp_path, Literal["small"]), shop(tmp_path, Literal["small", "large"])
    ann = Principal("ann", scopes=frozenset({"finance"}))
    async with client_of(new) as client:
        handle = await client.submit("expense")
        (item,) = await asked(new, BOB)
    async with client_of(old) as client:
        # It was asked by the new version, which accepts the answer, and the old one asks again.
        await inbox(old).answer(BOB, item.task_id, item.key, accept(value="large"))

        async def is_asked_again() -> bool:
            items = (await inbox(old).list(BOB)).items
            return bool(items) and "does not fit" in items[0].question.message

        await until(is_asked_again)
        await inbox(old).answer(ann, item.task_id, item.key, accept(value="small"))
        await status_of(client.task(str(handle.id)), "Waiting for the event 'shipped'")
    again = shop(tmp_path, Literal["small", "large"])
    async with client_of(again) as client:
        await again.send_event("shipped", "42")
        assert (await client.task(str(handle.id)).result(timeout=60)).text == "small"
    assert refunds == []
