"""A streamed answer that becomes a task: the log has the segments sent before, and numbers continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.store import open_store
from tests.asking.driving import accept
from tests.promises.speaking import answer, reach
from tests.streaming.speaking import (
    DIALECTS,
    Follower,
    Listener,
    merged,
    numbered,
    reading,
    speaker,
    streamed,
    texts,
    wish,
)
from tests.streaming.tooling import LATE_SECONDS, Name, Studio
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Bare, Speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODERN_AND_DRAFT = ("draft", "2026-07-28")


def turning(client: Speaker, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a call that streams and accepts tasks."""
    return streamed(client, tool, **arguments) | ({} if isinstance(client, Follower) else {"task": {}})


def made(result: dict[str, Any]) -> str:
    return str(result.get("task", result)["taskId"])


async def rest(client: Speaker, id: str, after: int) -> list[tuple[int, Any]]:
    """Return the segments of a task after a number, to its end."""
    if isinstance(client, Follower):
        return numbered((await client.ask("tasks/stream", {"taskId": id, "after": after})).frames)
    more = {"lastSeqNr": after} if after else {}
    return numbered((await client.ask("tasks/result", {"taskId": id, "stream": {}, **more})).frames)


@pytest.mark.parametrize("dialect", MODERN_AND_DRAFT)
async def test_one_that_is_too_slow_is_a_task_whose_log_has_what_was_sent(
    port: int, studio: Studio, dialect: str
) -> None:
    client = await speaker(dialect, port, promises=True)
    studio.allow(2)
    async with reading(client, "tools/call", turning(client, "gated_or_late", n=4)) as stream:
        await stream.up_to(2)
        LoopTime.here().advance(LATE_SECONDS)
        promised = (await stream.rest())["result"]
        assert numbered(stream.frames) == [(1, "1"), (2, "2")]
    id = made(promised)
    entries = [entry.data for entry in await studio.store.read(id) if entry.kind == "emitted"]
    assert entries[0]["first"] == 1
    assert [block["text"] for block in entries[0]["blocks"]] == ["1", "2"]
    studio.allow(2)
    assert await rest(client, id, 2) == [(3, "3"), (4, "4")]
    assert await rest(client, id, 0) == [(n, str(n)) for n in range(1, 5)]
    assert [block["text"] for block in (await merged(client, id))["content"]] == ["1", "2", "3", "4"]
    assert studio.ran["gated"] == 1


@pytest.mark.parametrize("dialect", MODERN_AND_DRAFT)
async def test_one_that_is_quick_enough_is_an_answer(port: int, studio: Studio, dialect: str) -> None:
    client = await speaker(dialect, port, promises=True)
    studio.allow(3)
    answered = await client.ask("tools/call", turning(client, "gated_or_late", n=3))
    if dialect == "draft":
        assert texts(answered.frames) == ["1", "2", "3"]
        assert answered.result["isComplete"] is True
        assert "_meta" not in answered.result
    else:
        assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]


@pytest.mark.parametrize("dialect", MODERN_AND_DRAFT)
async def test_a_tool_may_say_when_it_becomes_a_task(port: int, studio: Studio, dialect: str) -> None:
    client = await speaker(dialect, port, promises=True)
    answered = await client.ask("tools/call", turning(client, "promising"))
    sent = numbered(answered.frames)
    assert sent == [(1, "1"), (2, "2")][: len(sent)]
    id = made(answered.result)
    studio.allow(1)
    assert await rest(client, id, len(sent)) == [(n, str(n)) for n in range(len(sent) + 1, 6)]
    assert [block["text"] for block in (await merged(client, id))["content"]] == ["1", "2", "3", "4", "5"]


async def test_without_segments_on_the_way_all_of_them_are_in_the_task(port: int, studio: Studio) -> None:
    client = Bare(port)
    answered = await client.ask("tools/call", wish("promising"))
    assert len(answered.frames) == 1
    studio.allow(1)
    assert texts(
        (await client.ask("tasks/result", {"taskId": made(answered.result), "stream": {}})).frames
    ) == ["1", "2", "3", "4", "5"]


async def test_a_caller_that_takes_no_promise_gets_an_answer(port: int, studio: Studio) -> None:
    studio.allow(2)
    answered = await Bare(port).ask("tools/call", streamed(Bare(port), "promising"))
    assert texts(answered.frames) == ["1", "2", "3", "4", "5"]
    assert "taskId" not in str(answered.frames)
    answered = await Listener(port).ask("tools/call", {"name": "promising"})
    assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3", "4", "5"]
    assert "taskId" not in str(answered.frames)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_store_that_fails_at_the_turn_loses_nothing(dialect: str) -> None:
    async with failing() as (server, gate, port):
        client = await speaker(dialect, port, promises=True)
        params = wish("late", "immediate") if dialect == "2025-11-25" else turning(client, "late")
        call = asyncio.create_task(client.ask("tools/call", params))
        await until(lambda: server.refused)
        gate.set()
        answered = await call
        if dialect == "draft":
            assert texts(answered.frames) == ["1", "2", "3", "4"]
        else:
            assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_nor_does_one_whose_tool_ends_while_it_fails(dialect: str) -> None:
    async with failing(slowly=True) as (server, gate, port):
        client = await speaker(dialect, port, promises=True)
        params = wish("late", "immediate") if dialect == "2025-11-25" else turning(client, "late")
        call = asyncio.create_task(client.ask("tools/call", params))
        await until(lambda: server.asked)
        gate.set()
        await until(lambda: server.ended)
        server.fails.set()
        answered = await call
        if dialect == "draft":
            assert texts(answered.frames) == ["1", "2", "3", "4"]
        else:
            assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3", "4"]


class _Failing:
    """A store that refuses to create tasks; with `slowly`, after a delay."""

    def __init__(self, store: Any, slowly: bool) -> None:
        self._store = store
        self._slowly = slowly
        self.asked = self.refused = self.ended = 0
        self.fails = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        if self._slowly:
            await self.fails.wait()
        self.refused += 1
        raise StoreUnavailable("It is full.")


@asynccontextmanager
async def failing(*, slowly: bool = False) -> AsyncIterator[tuple[_Failing, asyncio.Event, int]]:
    store = _Failing(open_store("memory:"), slowly)
    gate = asyncio.Event()
    server = Server("failing", store=store, limits=Limits(drain_timeout=0.2))  # type: ignore[arg-type]

    @server.tool(task="optional", answer_within=0.1, streams=True)
    async def late(ctx: Context) -> None:
        """Emits before and after."""
        await ctx.emit("1")
        await ctx.emit("2")
        await gate.wait()
        await ctx.emit("3")
        await ctx.emit("4")
        store.ended += 1

    async with serving(server) as address:
        yield store, gate, address.port


@pytest.mark.parametrize("dialect", MODERN_AND_DRAFT)
async def test_rounds_first_and_then_a_task(tmp_path: Path, dialect: str) -> None:
    """Segments of a round before, of this round before the turn, and after it: one row of numbers."""
    gate = asyncio.Event()
    server = Server("both", store=f"sqlite:///{tmp_path}/tasks.db", secrets=["a secret of both"])

    @server.tool(task="optional", answer_within=float("inf"), poll_interval=0.05)
    async def both(ctx: Context) -> AsyncIterator[str]:
        """Asks by rounds, becomes a task, and asks again."""
        yield "1"
        first = await ctx.elicit("First?", Name, key="first")
        yield f"2 {first.name}"
        await ctx.promise()
        yield "3"
        await gate.wait()
        second = await ctx.elicit("Second?", Name, key="second")
        yield f"4 {second.name}"

    async with serving(server) as address:
        client = await speaker(dialect, address.port, promises=True)
        params = turning(client, "both")
        asked = await client.ask("tools/call", params)
        assert numbered(asked.frames) == [(1, "1")]
        assert list(asked.result["inputRequests"]) == ["first"]
        params["inputResponses"] = {"first": accept(name="a")}
        params["requestState"] = asked.result["requestState"]
        promised = await client.ask("tools/call", params)
        assert numbered(promised.frames) in ([], [(2, "2 a")])
        id = made(promised.result)
        gate.set()
        await reach(client, id, "input_required")
        await answer(client, id, second="b")
        assert await rest(client, id, 1) == [(2, "2 a"), (3, "3"), (4, "4 b")]
        whole = await merged(client, id)
        assert [block["text"] for block in whole["content"]] == ["1", "2 a", "3", "4 b"]
