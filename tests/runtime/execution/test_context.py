"""The facts, messages and capabilities that a `Context` gives to a function."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Context, Server
from antiphon.model.identity import LOG_LEVELS
from tests.promises.speaking import RELATED
from tests.support.memory import in_memory
from tests.support.speakers import CLIENT, KEY

CALL = {"name": "tool", "arguments": {}}


def params(frames: list[dict[str, Any]], method: str) -> list[Any]:
    return [frame["params"] for frame in frames if frame["method"] == f"notifications/{method}"]


async def test_progress_increases_and_is_sent_on_request() -> None:
    server = Server("tests")

    @server.tool
    async def tool(ctx: Context) -> str:
        for value in (0, 1, 1, 0.5, 2.5):
            await ctx.progress(value, 3, f"at {value}")
        await ctx.progress(3)
        return "done"

    async with in_memory(server) as client:
        await client.result("tools/call", CALL)
        assert client.notifications == []
        await client.result("tools/call", {**CALL, "_meta": {"progressToken": "tok"}})
        assert params(client.notifications, "progress") == [
            {"progressToken": "tok", "progress": 0, "total": 3, "message": "at 0"},
            {"progressToken": "tok", "progress": 1, "total": 3, "message": "at 1"},
            {"progressToken": "tok", "progress": 2.5, "total": 3, "message": "at 2.5"},
            {"progressToken": "tok", "progress": 3},
        ]


def logging_server() -> Server:
    server = Server("tests")

    @server.tool
    async def tool(ctx: Context) -> str:
        for level in LOG_LEVELS:
            await ctx.log(level, {"at": level}, logger="mine")  # type: ignore[arg-type]
        return "done"

    return server


@pytest.mark.parametrize("level", LOG_LEVELS)
async def test_a_session_gets_messages_of_its_level_and_above(level: str) -> None:
    async with in_memory(logging_server()) as client:
        await client.initialize()
        await client.result("logging/setLevel", {"level": level})
        await client.result("tools/call", CALL)
        heard = [frame["level"] for frame in params(client.notifications, "message")]
        assert heard == list(LOG_LEVELS)[LOG_LEVELS[level] :]


@pytest.mark.parametrize("level", LOG_LEVELS)
async def test_a_stateless_request_sets_its_own_log_level(level: str) -> None:
    async with in_memory(logging_server()) as client:
        await client.result("tools/call", CALL, meta={})
        assert client.notifications == []
        await client.result("tools/call", CALL, meta={KEY + "logLevel": level})
        heard = [frame["level"] for frame in params(client.notifications, "message")]
        assert heard == list(LOG_LEVELS)[LOG_LEVELS[level] :]
        assert client.notifications[0]["params"] == {"level": level, "data": {"at": level}, "logger": "mine"}


async def test_a_session_without_a_log_level_gets_all_messages_and_a_wrong_level_is_invalid() -> None:
    async with in_memory(logging_server()) as client:
        await client.initialize()
        assert (await client.error("logging/setLevel", {"level": "loud"}))["code"] == -32602
        await client.result("tools/call", CALL)
        assert len(client.notifications) == len(LOG_LEVELS)


async def test_the_ready_made_levels() -> None:
    server = Server("tests")

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.debug(1)
        await ctx.info("two")
        await ctx.warning([3])
        await ctx.error({"four": 4}, logger="x")
        return "done"

    async with in_memory(server) as client:
        await client.initialize()
        await client.result("tools/call", CALL)
        assert params(client.notifications, "message") == [
            {"level": "debug", "data": 1},
            {"level": "info", "data": "two"},
            {"level": "warning", "data": [3]},
            {"level": "error", "data": {"four": 4}, "logger": "x"},
        ]


async def test_a_context_knows_the_caller_and_the_request() -> None:
    seen: list[Context] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        yield f"the lifespan of {server.name}"

    server = Server("tests", lifespan=lifespan)

    @server.tool
    async def tool(ctx: Context) -> str:
        seen.append(ctx)
        return "done"

    async with in_memory(server) as client:
        meta = {KEY + "clientInfo": CLIENT, KEY + "clientCapabilities": {"sampling": {}}, "mine": 1}
        await client.result("tools/call", CALL, meta=meta)
    (ctx,) = seen
    assert (ctx.request_id, ctx.principal.id, ctx.lifespan) == (1, "", "the lifespan of tests")
    assert ctx.client is not None
    assert (ctx.client.name, ctx.client.version) == (CLIENT["name"], CLIENT["version"])
    assert ctx.capabilities == {"sampling": {}}
    assert ctx.meta["mine"] == 1


async def test_require_raises_for_missing_capabilities() -> None:
    server = Server("tests")

    @server.tool
    async def tool(ctx: Context) -> str:
        ctx.require("sampling", "roots")
        return "done"

    async with in_memory(server) as client:
        error = await client.error("tools/call", CALL, meta={KEY + "clientCapabilities": {"roots": {}}})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"sampling": {}}}
        able = {KEY + "clientCapabilities": {"roots": {}, "sampling": {}}}
        assert (await client.result("tools/call", CALL, meta=able))["isError"] is False


async def test_a_missing_capability_has_no_code_of_its_own_before_2026() -> None:
    server = Server("tests", store="memory:")

    @server.tool(task="optional")
    async def tool(ctx: Context) -> str:
        ctx.require("sampling")
        return "done"

    @server.prompt
    async def prompt(ctx: Context) -> str:
        ctx.require("sampling")
        return "done"

    @server.resource("u://r")
    async def resource(ctx: Context) -> str:
        ctx.require("sampling")
        return "done"

    async with in_memory(server) as client:
        await client.initialize()
        for method, named in (("prompts/get", {"name": "prompt"}), ("resources/read", {"uri": "u://r"})):
            error = await client.error(method, named)
            assert error["code"] == -32602
            assert "sampling" in error["message"]
            assert error["data"] == {"requiredCapabilities": {"sampling": {}}}
        made = await client.result("tools/call", {**CALL, "task": {}})
        id = made["task"]["taskId"]
        for result in (
            await client.result("tools/call", CALL),
            await client.result("tasks/result", {"taskId": id}),
        ):
            assert result["isError"] is True
            assert "sampling" in result["content"][0]["text"]
        assert result["_meta"] == {RELATED: {"taskId": id}}
        assert (await client.result("tasks/get", {"taskId": id}))["status"] == "failed"


async def test_functions_that_are_not_async_wait_for_the_context() -> None:
    server = Server("tests")

    @server.tool
    def tool(ctx: Context) -> str:
        ctx.wait(ctx.progress(1))
        ctx.wait(ctx.progress(2))
        return "done"

    @server.tool
    async def wrong(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match="await"):
            ctx.wait(ctx.progress(1))
        return "told so"

    async with in_memory(server) as client:
        await client.result("tools/call", {**CALL, "_meta": {"progressToken": 1}})
        assert [frame["progress"] for frame in params(client.notifications, "progress")] == [1, 2]
        assert await client.text("wrong") == "told so"


async def test_prompts_and_resources_have_a_context_too() -> None:
    server = Server("tests")

    @server.prompt
    async def prompt(ctx: Context) -> str:
        await ctx.progress(1)
        return "p"

    @server.resource("u://r")
    async def resource(ctx: Context) -> str:
        await ctx.progress(1)
        return "r"

    async with in_memory(server) as client:
        await client.result("prompts/get", {"name": "prompt", "_meta": {"progressToken": "p"}})
        await client.result("resources/read", {"uri": "u://r", "_meta": {"progressToken": "r"}})
        assert [frame["progressToken"] for frame in params(client.notifications, "progress")] == ["p", "r"]
