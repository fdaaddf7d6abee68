"""Lists and resources of an upstream server that change while a gateway offers them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon import Client, Context, InvalidRequest, Principal, Server
from antiphon.middleware import CallNext, IncomingRequest
from tests.support.polling import until
from tests.support.serving import serving

PROTOCOLS = ["2026-07-28", "2025-11-25"]


def upstream() -> Server:
    server = Server("upstream", instructions="Count well.")

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            await ctx.progress(number, to, f"at {number}")
            await ctx.info(f"number {number}")
        return str(to)

    @server.tool(task="required")
    async def slow(ctx: Context) -> str:
        await ctx.progress(1, 2)
        return f"slow {await ctx.elicit('Sure?', bool)}"

    @server.resource("notes://today")
    def today() -> str:
        return "Nothing."

    @server.resource("notes://{day}")
    def of_day(day: str) -> str:
        return day

    return server


def gateway_to(url: str, **options: Any) -> Server:
    server = Server("gateway", secrets=["a secret of these tests"])
    server.mount("up", url, **options)
    return server


@pytest.mark.parametrize("spoken", PROTOCOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_changes_reach_those_who_listen(protocol: str, spoken: str) -> None:
    inner = upstream()
    async with serving(inner) as address:
        outer = gateway_to(address.url, protocol=spoken)
        async with Client(outer, protocol=protocol) as client, client.listen("notes://today") as changes:
            inner.add_tool(lambda: "new", name="added")
            inner.notify_resource_updated("notes://today")
            inner.notify_resource_updated("notes://other")
            found: set[str] = set()
            async with asyncio.timeout(30):
                async for change in changes:
                    found.add(getattr(change, "uri", None) or change.kind)  # type: ignore[union-attr]
                    if {"tools", "notes://today"} <= found:
                        break
            assert "notes://other" not in found
            assert (await client.call("up_added")).text == "new"
            inner.remove_tool("added")
            await until(lambda: "up_added" not in outer.tools)


@pytest.mark.parametrize("spoken", PROTOCOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_progress_and_log_messages_reach_the_caller(protocol: str, spoken: str) -> None:
    async with serving(upstream()) as address:
        outer = gateway_to(address.url, protocol=spoken)
        progress: list[Any] = []
        logs: list[Any] = []
        options: dict[str, Any] = {"protocol": protocol, "elicit": lambda question: {}}
        async with Client(outer, on_log=logs.append, log_level="info", **options) as client:
            await client.call("up_count", to=2, on_progress=progress.append)
        assert [(each.progress, each.total, each.message) for each in progress] == [
            (1, 2, "at 1"),
            (2, 2, "at 2"),
        ]
        assert [each.data for each in logs] == ["number 1", "number 2"]


@pytest.mark.parametrize("spoken", PROTOCOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_tool_that_its_server_runs_as_a_task(protocol: str, spoken: str) -> None:
    async with serving(upstream()) as address:
        outer = gateway_to(address.url, protocol=spoken)
        options: dict[str, Any] = {"protocol": protocol, "elicit": lambda question: {"value": True}}
        async with Client(outer, **options) as client:
            assert client.instructions == "For tools whose names begin with up_:\nCount well."
            tools = {tool.name: tool for tool in await client.tools()}
            if protocol == "2025-11-25":
                assert tools["up_slow"].task_support == "optional"
            assert (await client.call("up_slow")).text == "slow True"
            handle = await client.submit("up_slow")
            assert handle.id
            assert (await handle.result(timeout=60)).text == "slow True"


async def test_a_resource_that_is_not_listed_is_read_if_it_looks_like_those_that_are() -> None:
    inner = Server("upstream")

    @inner.resource("notes://today")
    def today() -> str:
        return "Nothing."

    async with serving(inner) as address, Client(gateway_to(address.url)) as client:
        inner.add_resource(lambda: "Hidden.", "notes://hidden")
        read = await client.read("notes://hidden")
        assert read.contents[0].text == "Hidden."  # type: ignore[union-attr]


async def test_a_server_that_starts_later_is_offered_then() -> None:
    inner = upstream()
    async with serving(inner) as address:
        port = address.port
    outer = gateway_to(f"http://127.0.0.1:{port}/mcp", tasks=["count"])
    async with Client(outer) as client:
        assert await client.tools() == []
        async with serving(inner, port=port):
            await until(lambda: "up_count" in outer.tools, within=60)
            handle = await client.submit("up_count", to=1)
            assert handle.id
            assert (await handle.result(timeout=60)).text == "1"
            inner.engine.end_listeners()  # as a signal does
        lost = await client.call("up_count", to=1, check=False)
        assert lost.is_error
        assert "No connection to the server 'up'" in lost.text


async def test_large_results_become_artifacts_of_the_gateway() -> None:
    inner = Server("upstream")
    inner.add_tool(lambda: "x" * 10_000, name="long")
    async with (
        serving(inner) as address,
        Client(gateway_to(address.url, artifact_over=1000), principal="ada") as client,
    ):
        result = await client.call("up_long")
        assert len(result.text) < 5000
        (stored,) = [each for each in await client.resources() if each.uri.startswith("artifact")]
        read = await client.read(stored.uri)
        assert read.contents[0].text == "x" * 10_000  # type: ignore[union-attr]


async def test_scopes_and_the_audit_log_of_the_gateway_are_in_front() -> None:
    seen: list[str] = []

    async def audit(request: IncomingRequest, call_next: CallNext) -> Any:
        seen.append(f"{request.principal.id} {getattr(request.request, 'name', '')}".strip())
        return await call_next()

    async with serving(upstream()) as address:
        outer = Server("gateway", middleware=[audit])
        outer.mount("up", address.url, scopes=["count"])
        allowed = Principal("ada", scopes=frozenset({"count"}))
        async with Client(outer, principal=allowed) as client:
            assert (await client.call("up_count", to=1)).text == "1"
        async with Client(outer, principal="bob") as client:
            with pytest.raises(InvalidRequest, match="'up_count' needs the scope count"):
                await client.call("up_count", to=1)
            with pytest.raises(InvalidRequest, match="needs the scope count"):
                await client.read("notes://today")
    assert [each for each in seen if each.endswith("count")] == ["ada up_count", "bob up_count"]
