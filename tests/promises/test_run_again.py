"""A new task for the call of an earlier one."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Client, Context, Failure, Principal, Server
from antiphon.errors import InvalidParams
from antiphon.runtime.tasks.run_again import run_again
from antiphon.store.contract import Record
from antiphon.store.memory import MemoryStore


class Shop:
    """A server with a tool that fails the first time."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.server = Server("shop", store=self.store)
        self.charges: list[str] = []
        self.callers: list[str] = []

        @self.server.tool(task="required", poll_interval=0.05)
        async def buy(item: str, ctx: Context) -> str:
            await ctx.step(self.charge, item)
            self.callers.append(ctx.principal.id)
            if len(self.charges) == 1:
                raise Failure("The shop is closed.")
            return f"bought {item}"

    async def charge(self, item: str) -> str:
        self.charges.append(item)
        return item


async def test_a_task_runs_again_with_its_arguments_and_nothing_else() -> None:
    shop = Shop()
    async with Client(shop.server, principal=Principal("ann")) as client:
        handle = await client.submit("buy", {"item": "tea"})
        assert (await handle.result(check=False)).is_error
        record = await shop.store.get(handle.id)
        assert record is not None
        again = await run_again(shop.store, record)
        async with asyncio.timeout(60):
            result = await client.task(again.id).result()
        assert result.text == "bought tea"
        assert shop.charges == ["tea", "tea"]
        assert shop.callers == ["ann", "ann"]
        assert again.id != handle.id
        assert again.summary == 'item="tea"'
        assert await shop.store.get(handle.id) == record
        first, second = [(await shop.store.read(id, limit=1))[0].data for id in (handle.id, again.id)]
        assert first["journal"]["id"] != second["journal"]["id"]


async def test_a_task_whose_log_has_no_call_cannot_run_again() -> None:
    store = MemoryStore()
    await store.open()
    record = Record("t", "", "buy", "ended", 0, 1, 1, None, {})
    await store.create(record, [("created", {"task": 3})])
    with pytest.raises(InvalidParams, match="does not say which call"):
        await run_again(store, record)
    await store.close()
