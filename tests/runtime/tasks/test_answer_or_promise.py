"""A call whose conversion to a task fails, while its function goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from antiphon import Context, Server
from antiphon.errors import StoreUnavailable
from tests.promises.speaking import TASKS
from tests.runtime.faulty_store import FaultyStore
from tests.support.memory import in_memory
from tests.support.speakers import KEY

TAKES_PROMISES = {KEY + "clientCapabilities": {"extensions": {TASKS: {}}}}


class Gated(FaultyStore):
    """A store that refuses to create tasks after a delay."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def create(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.set()
        await self.gate.wait()
        raise StoreUnavailable("It is full.")


async def test_a_step_that_ran_during_a_failed_conversion_runs_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "antiphon")
    store: Any = Gated()
    server = Server("tests", store=store)
    done: list[str] = []

    async def work() -> str:
        done.append("work")
        store.gate.set()
        return "worked"

    @server.tool(task="optional", answer_within=float("inf"))
    async def tool(ctx: Context) -> str:
        promising = asyncio.create_task(ctx.promise())
        await store.asked.wait()
        await ctx.emit("before")
        value = await ctx.step(work)
        await promising
        return value

    async with in_memory(server) as client:
        result = await client.result("tools/call", {"name": "tool", "arguments": {}}, meta=TAKES_PROMISES)
    assert result["resultType"] == "complete"
    assert [block["text"] for block in result["content"]] == ["before", "worked"]
    assert done == ["work"]
    assert any("It is full. The call goes on as an answer." in message for message in caplog.messages)
