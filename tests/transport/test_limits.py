"""The limits of a server, and its responses at each limit."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Context, Limits, Server
from tests.support import http
from tests.support.http import connect
from tests.support.polling import until
from tests.support.serving import serving, serving_asgi
from tests.support.speakers import DIALECTS, JSON, KEY, Bare, Modern, speaker


def slow(limits: Limits, **options: float) -> tuple[Server, asyncio.Event]:
    server = Server("tests", limits=limits)
    release = asyncio.Event()

    @server.tool(**options)  # type: ignore[call-overload, misc]
    async def wait() -> str:
        await release.wait()
        return "done"

    @server.prompt
    async def prompt() -> str:
        await release.wait()
        return "done"

    return server, release


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tool_that_takes_too_long_fails(dialect: str) -> None:
    server, _ = slow(Limits(), timeout=0.2)
    async with serving(server) as where:
        asker = await speaker(dialect, where.port)
        response = await asker.call("wait")
        assert response.status == 200
        assert response.result["isError"] is True
        assert "0.2 seconds" in response.text


async def test_every_call_has_a_deadline() -> None:
    server, _ = slow(Limits(call_timeout=0.2))
    async with serving(server) as where:
        assert "0.2 seconds" in (await Bare(where.port).call("wait")).text
        response = await Bare(where.port).ask("prompts/get", {"name": "prompt"})
        assert response.error["code"] == -32603


async def test_a_tool_may_have_more_time_than_others() -> None:
    server, release = slow(Limits(call_timeout=0.2), timeout=60)
    async with serving(server) as where:
        call = asyncio.create_task(Bare(where.port).call("wait"))
        response = await Bare(where.port).ask("prompts/get", {"name": "prompt"})
        assert response.error["code"] == -32603
        assert not call.done()
        release.set()
        assert (await call).text == "done"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_long_is_refused(chunked: bool) -> None:
    async with (
        serving(Server("tests", limits=Limits(max_body_bytes=1000))) as where,
        connect(where.port) as connection,
    ):
        if chunked:
            await connection.write(http.head("POST", "/mcp", {**JSON, "transfer-encoding": "chunked"}, None))
            for _ in range(20):
                await connection.write(b"64\r\n" + b"x" * 100 + b"\r\n")
        else:
            await connection.write(http.head("POST", "/mcp", JSON, 1001))
        response = await connection.receive()
        assert (response.status, response.error["code"]) == (413, -32600)


async def test_a_body_of_just_the_limit_is_read() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"' + b"x" * 900 + b'"}}'
    async with serving(Server("tests", limits=Limits(max_body_bytes=len(body)))) as where:
        assert (await http.request(where.port, "POST", JSON, body)).status == 200
    async with serving(Server("tests", limits=Limits(max_body_bytes=len(body) - 1))) as where:
        assert (await http.request(where.port, "POST", JSON, body)).status == 413


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 5000])
async def test_an_invalid_content_length(length: str) -> None:
    async with serving(Server("tests")) as where, connect(where.port) as connection:
        await connection.send("POST", "/mcp", {**JSON, "content-length": length}, b"")
        assert (await connection.receive_head()).status in (400, 413)
        assert (await Bare(where.port).ask("ping")).status == 200


async def test_a_body_that_does_not_arrive_times_out() -> None:
    async with (
        serving(Server("tests", limits=Limits(body_timeout=0.3))) as where,
        connect(where.port) as connection,
    ):
        await connection.write(http.head("POST", "/mcp", JSON, 100) + b'{"jsonrpc":')
        response = await connection.receive()
        assert (response.status, response.error["code"]) == (408, -32600)
        assert response.headers["connection"] == "close"
        assert await connection.reader.read() == b""
        await until(lambda: where.under_way == 0)


async def test_a_client_that_disconnects_within_its_body_leaves_nothing_behind() -> None:
    async with serving_asgi(Server("tests")) as where:
        async with connect(where.port) as connection:
            await connection.write(http.head("POST", "/mcp", JSON, 100) + b'{"jsonrpc":')
            await until(lambda: where.under_way == 1)
            connection.vanish()
        await until(lambda: where.under_way == 0)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_over_the_limit_is_refused_as_busy(dialect: str) -> None:
    server, release = slow(Limits(max_calls=3, principal_share=1.0))
    async with serving(server) as where:
        asker = await speaker(dialect, where.port)
        calls = [asyncio.create_task(asker.call("wait")) for _ in range(3)]
        await until(lambda: where.under_way == 3)
        refused = await asker.call("wait")
        assert (refused.status, refused.error["code"]) == (503, -32603)
        assert int(refused.headers["retry-after"]) > 0
        release.set()
        assert [(await call).text for call in calls] == ["done"] * 3
        assert (await asker.call("wait")).text == "done"


async def test_a_slow_body_does_not_delay_other_requests() -> None:
    server, release = slow(Limits())
    release.set()
    async with serving_asgi(server) as where, connect(where.port) as connection:
        await connection.write(http.head("POST", "/mcp", JSON, 100) + b"{")
        await until(lambda: where.under_way == 1)
        assert (await Modern(where.port).call("wait")).text == "done"


async def test_a_client_that_does_not_read_its_stream_is_disconnected() -> None:
    server = Server("tests", limits=Limits(call_timeout=0.3, body_timeout=0.3))
    sent = 0

    @server.tool
    async def flood(ctx: Context) -> str:
        nonlocal sent
        while True:
            sent += 1
            await ctx.info("x" * 100_000)

    async with serving(server) as where:
        asker = Modern(where.port)
        params = asker.tool_call("flood", {KEY + "logLevel": "info"})
        async with asker.asking("tools/call", params) as connection:
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: sent > 1)
            await until(lambda: where.under_way == 0)
            assert sent < 1000, "what a client does not read is not made"
            connection.vanish()
