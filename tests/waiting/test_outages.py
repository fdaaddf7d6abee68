"""A function that waits for the store while the store is away: an outage is no error of the function."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Artifact, Context, Server
from antiphon.errors import RequestError, StoreUnavailable
from antiphon.runtime.execution import run as run_module
from antiphon.runtime.tasks import claimed_task as claimed_task_module
from antiphon.store.artifacts import open_artifacts
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.support.polling import until
from tests.waiting.support import client_of, status_of


class Away:
    """A store whose methods are away for some calls each."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.left: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.left[name] > 0:
                self.left[name] -= 1
                raise StoreUnavailable("The test has cut the store off.")
            return await found(*args, **kwargs)

        return call


class Shop:
    """A server with tools that wait for a payment, and refund at any error."""

    def __init__(self, store: Store) -> None:
        self.store: Any = Away(store)
        self.artifacts: Any = Away(open_artifacts("memory:"))
        self.refunds = self.runs = 0
        self.server = server = Server("shop", store=self.store, artifacts=self.artifacts)

        async def wait(ctx: Context) -> Any:
            self.runs += 1
            try:
                return await ctx.event("payment", key="42")
            except Exception:
                return await ctx.step(refund)

        async def refund() -> str:
            self.refunds += 1
            return "refunded"

        @server.tool(task="required", poll_interval=0.02)
        async def plain(ctx: Context) -> Any:
            return await wait(ctx)

        @server.tool(task="required", poll_interval=0.02)
        async def in_a_branch(ctx: Context) -> Any:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(wait(ctx))
            return waiting.result()

        @server.tool(task="required", poll_interval=0.02)
        def in_a_thread(ctx: Context) -> Any:
            return ctx.wait(wait(ctx))

        @server.tool(task="required", poll_interval=0.02)
        async def stubborn(ctx: Context) -> Any:
            try:
                return await wait(ctx)
            except BaseException:
                return "swallowed"

        @server.tool(task="required", poll_interval=0.02)
        async def failing(ctx: Context) -> Any:
            try:
                return await wait(ctx)
            except BaseException:
                raise ValueError("The cleaning up has failed.") from None

        @server.tool(task="optional", answer_within=float("inf"), poll_interval=0.02)
        async def becomes_a_task(ctx: Context) -> Any:
            return await wait(ctx)

        @server.tool(task="optional", answer_within=float("inf"), poll_interval=0.02, replay=False)
        async def asks_as_a_task(ctx: Context) -> Any:
            self.runs += 1
            try:
                return await ctx.elicit("Paid?", str)
            except Exception:
                return await refund()

        @server.tool(task="required", poll_interval=0.02, replay=False)
        async def emits_and_asks(ctx: Context) -> Any:
            self.runs += 1
            try:
                await ctx.emit("a bill")
                return await ctx.elicit("Paid?", str)
            except Exception:
                return await refund()

        @server.tool
        async def note() -> Artifact[str]:
            return Artifact("12345")

        @server.tool
        async def measure(of: Artifact[AsyncIterator[bytes]]) -> int:
            self.runs += 1
            try:
                return sum([len(piece) async for piece in of.value])
            except Exception:
                return len(await refund())


TOOLS = ["plain", "in_a_branch", "in_a_thread"]
UNWINDING = [*TOOLS, "stubborn", "failing"]


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_task_waits_for_its_event_while_the_store_is_away(store: Store, tool: str) -> None:
    shop = Shop(store)
    async with client_of(shop.server) as client:
        shop.store.left["read_events"] = 3
        handle = await client.submit(tool)
        await status_of(handle, "Waiting for the event")
        await shop.server.send_event("payment", "42", 9)
        assert (await handle.result(timeout=60)).text == "9"
    assert (shop.refunds, shop.store.left["read_events"]) == (0, 0)


@pytest.mark.parametrize("tool", UNWINDING)
async def test_a_task_whose_store_stays_away_runs_again(
    store: Store, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STORE_OUTAGE_SECONDS", -1.0)
    shop = Shop(store)
    async with client_of(shop.server) as client:
        await shop.server.send_event("payment", "42", 9)
        shop.store.left["read_events"] = 1
        handle = await client.submit(tool)
        assert (await handle.result(timeout=60)).text == "9"
    assert (shop.refunds, shop.runs) == (0, 2)


@pytest.mark.parametrize("tool", ["becomes_a_task", "asks_as_a_task"])
async def test_a_call_becomes_a_task_when_the_store_is_there_again(store: Store, tool: str) -> None:
    shop, answers = Shop(store), list[str]()

    async def answer(question: Any) -> dict[str, Any]:
        answers.append(question.message)
        return {"value": "9"}

    async with client_of(shop.server, elicit=answer) as client:
        shop.store.left["create"] = 3
        handle = await client.submit(tool)
        if tool == "becomes_a_task":
            await status_of(handle, "Waiting for the event")
            await shop.server.send_event("payment", "42", "9")
        assert (await handle.result(timeout=60)).text == "9"
    assert (shop.refunds, shop.store.left["create"]) == (0, 0)


@pytest.mark.parametrize("tool", ["becomes_a_task", "asks_as_a_task"])
async def test_a_call_that_cannot_become_a_task_in_a_long_outage_is_no_error_of_the_function(
    store: Store, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STORE_OUTAGE_SECONDS", -1.0)
    shop = Shop(store)
    async with client_of(shop.server) as client:
        shop.store.left["create"] = 100
        with pytest.raises(RequestError):
            await client.call(tool)
    assert (shop.refunds, shop.runs) == (0, 1)


async def test_a_segment_that_cannot_be_written_is_no_error_of_the_question_after_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_task_module, "STORE_OUTAGE_SECONDS", -1.0)
    shop = Shop(store)
    async with client_of(shop.server) as client:
        shop.store.left["append"] = 1
        await client.submit("emits_and_asks")
        await until(lambda: shop.runs == 1 and not shop.server.engine.tasks.running)
    assert shop.refunds == 0


@pytest.mark.parametrize(("away", "seconds"), [(3, 600.0), (1, -1.0)], ids=["short", "long"])
async def test_a_function_reads_an_artifact_in_pieces_while_the_store_is_away(
    away: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "STORE_OUTAGE_SECONDS", seconds)
    shop = Shop(MemoryStore())
    async with client_of(shop.server) as client:
        id = (await client.call("note")).data["artifact_id"]
        shop.artifacts.left["read"] = away
        if away > 1:
            assert (await client.call("measure", of=id)).data == 5
        else:
            with pytest.raises(RequestError):
                await client.call("measure", of=id)
    assert (shop.refunds, shop.runs) == (0, 1)
