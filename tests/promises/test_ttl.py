"""The lifetime of tasks: on a running server and after a restart, in every state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Server
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.promises.tooling import STORES, Ahead, Name, Workshop, at_work, store_of
from tests.support.polling import until
from tests.support.serving import Address, serving
from tests.support.speakers import Bare, Speaker

HOUR = 3_600_000
GONE = {"code": -32602, "message": "Failed to retrieve task: Task not found"}


async def is_gone(client: Speaker, id: str) -> bool:
    """Whether a task is gone: nothing else is wrong with it."""
    frame = (await client.ask("tasks/get", {"taskId": id})).frame
    assert frame.get("error", GONE) == GONE
    return "error" in frame


@pytest.mark.parametrize("tool", ["add", "ask", "long"])
async def test_a_task_is_gone_when_its_time_is_over(
    port: int, workshop: Workshop, tool: str, ahead: Ahead
) -> None:
    client = Bare(port)
    id = (await begin(client, tool, HOUR, **({"a": 1, "b": 2} if tool == "add" else {})))["taskId"]
    if tool != "long":
        await reach(client, id, "completed", "input_required")
    ahead(minutes=50)
    await workshop.server.engine.tasks.check_times()
    assert not await is_gone(client, id)
    ahead(minutes=10)
    assert await is_gone(client, id)
    assert (await client.ask("tasks/list")).result["tasks"] == []
    await until(lambda: not workshop.server.engine.tasks.running)


async def test_a_running_task_is_stopped_when_it_expires(
    served: tuple[Workshop, Address], ahead: Ahead
) -> None:
    workshop, address = served
    client = Bare(address.port)
    id = (await begin(client, "long", HOUR))["taskId"]
    waiting = asyncio.create_task(client.ask("tasks/result", {"taskId": id}))
    await until(lambda: workshop.ran["long"] and address.under_way == 1)
    await workshop.server.engine.tasks.check_times()
    assert not workshop.stopped["long"]
    ahead(hours=1)
    await until(lambda: workshop.stopped["long"])
    assert (await waiting).error == GONE  # whoever waits for it hears that it is gone


async def test_what_expired_leaves_nothing_in_the_store(port: int, workshop: Workshop, ahead: Ahead) -> None:
    client = Bare(port)
    ids = [(await begin(client, "add", HOUR // 2, a=1, b=2))["taskId"] for _ in range(5)]
    kept = (await begin(client, "add", a=1, b=2))["taskId"]
    for id in [*ids, kept]:
        await reach(client, id, "completed")
    ahead(minutes=30)
    for id in ids:
        assert await is_gone(client, id)
    await workshop.server.engine.tasks.check_times()
    assert not any([await workshop.store.read(id) for id in ids])
    assert len(await workshop.store.read(kept)) == 2


async def test_the_time_goes_on_while_no_server_runs(tmp_path: Path, ahead: Ahead) -> None:
    async with at_work("sqlite", tmp_path) as (_, address):
        client = Bare(address.port)
        short = (await begin(client, "add", HOUR, a=1, b=2))["taskId"]
        longer = (await begin(client, "ask", 3 * HOUR))["taskId"]
        await reach(client, longer, "input_required")
    ahead(hours=2)
    async with at_work("sqlite", tmp_path) as (_, address):
        client = Bare(address.port)
        assert await is_gone(client, short)
        await reach(client, longer, "input_required")
        ahead(hours=1)
        assert await is_gone(client, longer)


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
async def test_a_task_is_kept_until_it_has_ended_and_then_for_its_ttl(
    kind: str, tmp_path: Path, ahead: Ahead
) -> None:
    server, gate = Server("ttl", store=store_of(kind, tmp_path)), asyncio.Event()

    @server.tool(task="required", task_ttl=3600, poll_interval=0.05)
    async def wait(ctx: Context, ask: bool) -> str:
        """Take longer than the task is kept."""
        if ask:
            await ctx.elicit("Who?", Name, key="who")
        else:
            await gate.wait()
        return "done"

    async with serving(server) as address:
        client = Patient(address.port)
        running, asking = [(await begin(client, "wait", ask=ask))["taskId"] for ask in (False, True)]
        await reach(client, asking, "input_required")
        ahead(hours=2)
        await server.engine.tasks.check_times()
        assert (await look(client, running))["status"] == "working"
        assert (await look(client, asking))["ttlMs"] is None
        gate.set()
        await answer(client, asking, who="Ada")
        ended = await asyncio.gather(*(reach(client, id, "completed") for id in (running, asking)))
        for task in ended:
            assert 3 * HOUR <= task["ttlMs"] < 4 * HOUR
        for task in ended:
            assert not await is_gone(client, task["taskId"])
        ahead(hours=1)
        for task in ended:
            assert await is_gone(client, task["taskId"])


async def test_expiry_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead: Ahead) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    async with at_work("sqlite", tmp_path) as (_, address):
        client = Bare(address.port)
        ids = [
            (await begin(client, tool, HOUR, **arguments))["taskId"]
            for tool, arguments in (("long", {}), ("ask", {}), ("add", {"a": 1, "b": 2}))
        ]
        running, asking, ended = ids
        await reach(client, asking, "input_required")
        await reach(client, ended, "completed")
        ahead(hours=1)

        def says(text: str) -> bool:
            return any(text in line for line in caplog.messages)

        await until(lambda: says(f"Deleted task {ended}: its lifetime is over."))
        await until(lambda: says(f"Task {running} has expired after"))
        await until(lambda: says(f"Task {asking} has expired after"))
    assert says("it was running, and its lifetime was 3600 s.")
    assert says("it was waiting for an answer, and its lifetime was 3600 s.")
