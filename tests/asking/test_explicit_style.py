"""Functions that return their questions, run steps, and decide by the answers where they continue."""

from __future__ import annotations

import logging

import pytest

from antiphon import Client, Context, Elicit, InputRequired, Server

FORM = {"type": "object", "properties": {"value": {"type": "string"}}}
ASK = InputRequired({"sure": Elicit("Sure?", FORM)}, state={"round": 1})


def shop(done: list[str], store: str = "memory:") -> Server:
    server = Server("shop", secrets=["a secret of this test, long enough"], store=store)

    def prepare(item: str) -> str:
        done.append(f"prepare {item}")
        return item

    def send(item: str) -> str:
        done.append(f"send {item}")
        return item

    @server.tool
    async def branching(ctx: Context) -> str | InputRequired:
        """Prepare in the first round, and send in the second."""
        if "sure" not in ctx.input_responses:
            await ctx.step(prepare, "tea")
            return ASK
        return await ctx.step(send, "tea")

    @server.tool
    async def repeating(ctx: Context) -> str | InputRequired:
        """Prepare in both rounds, which happens once."""
        item = await ctx.step(prepare, "tea")
        return item if "sure" in ctx.input_responses else ASK

    @server.tool(task="required", poll_interval=0.01)
    async def task(ctx: Context) -> str | InputRequired:
        """Do the same as `branching`, in a task."""
        return await branching(ctx)

    return server


async def accept(question: object) -> dict[str, str]:
    return {"value": "yes"}


@pytest.mark.parametrize("protocol", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_round_may_take_another_path_than_the_round_before(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    async with Client(shop(done), elicit=accept, protocol=protocol) as client:
        with caplog.at_level(logging.WARNING, "antiphon"):
            assert (await client.call("branching")).text == "tea"
    assert done == ["prepare tea", "send tea"]
    assert not caplog.records


@pytest.mark.parametrize("protocol", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_step_of_the_round_before_does_not_run_again(protocol: str) -> None:
    done: list[str] = []
    async with Client(shop(done), elicit=accept, protocol=protocol) as client:
        assert (await client.call("repeating")).text == "tea"
    assert done == ["prepare tea"]


async def test_a_task_may_take_another_path_after_the_answer() -> None:
    done: list[str] = []
    async with Client(shop(done), elicit=accept) as client:
        promise = await client.submit("task")
        assert (await promise.result()).text == "tea"
    assert done == ["prepare tea", "send tea"]
