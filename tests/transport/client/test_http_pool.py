"""The pool of connections on aiohttp is shared in an event loop, and closed with its last client."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap

import aiohttp
import pytest

from antiphon import Client, Server
from antiphon.transport.client import http_aiohttp
from antiphon.transport.client.http_aiohttp import AiohttpClient
from tests.support.polling import until
from tests.transport.client.web_server import always, response, web_server


async def fetch(http: AiohttpClient, url: str) -> bytes:
    found = await http.request("GET", url, {})
    try:
        return await found.read()
    finally:
        await found.close()


async def test_clients_share_connections_and_the_last_one_closes_them() -> None:
    async with web_server(always(response(b"hi"))) as server:
        first, second = AiohttpClient(), AiohttpClient()
        assert await fetch(first, server.url) == await fetch(second, server.url) == b"hi"
        assert [asked.connection for asked in server.asked] == [0, 0]
        await first.close()
        await first.close()
        assert await fetch(second, server.url) == b"hi"
        assert server.open_connections == 1
        await second.close()
        await until(lambda: server.open_connections == 0)
        third = AiohttpClient()
        await fetch(third, server.url)
        await third.close()
    assert asyncio.get_running_loop() not in http_aiohttp._pools


async def test_a_client_that_is_dropped_gives_up_its_share() -> None:
    async with web_server(always(response(b"hi"))) as server:
        http = AiohttpClient()
        await fetch(http, server.url)
        del http
        gc.collect()
        await until(lambda: server.open_connections == 0)
    assert asyncio.get_running_loop() not in http_aiohttp._pools


async def test_connections_that_have_been_idle_for_long_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_aiohttp, "_IDLE_SECONDS", 0.01)
    async with web_server(always(response(b"hi"))) as server:
        http = AiohttpClient()
        for _ in range(2):
            await fetch(http, server.url)
            await asyncio.sleep(0.05)
        await http.close()
    assert [asked.connection for asked in server.asked] == [0, 1]


async def test_a_session_of_the_user_is_used_and_left_open() -> None:
    server = Server("tests")

    @server.tool
    def whoami() -> str:
        return "ada"

    from tests.support.serving import serving

    async with serving(server) as address, aiohttp.ClientSession(headers={"x-mine": "1"}) as session:
        async with Client(address.url, http=session) as client:
            assert (await client.call("whoami")).text == "ada"
        assert not session.closed


DROPPED = """
    import asyncio
    from antiphon import Client

    async def main(url):
        client = Client(url)
        {begin}
        await client.__aenter__()
        {end}

    import logging, sys
    logging.basicConfig()
    {run}
"""


@pytest.mark.parametrize(
    ("begin", "end", "run"),
    [
        ("pass", "pass", "asyncio.run(main(sys.argv[1]))"),
        ("global kept; kept = client", "pass", "asyncio.run(main(sys.argv[1]))"),
        ("pass", "sys.exit(3)", "asyncio.run(main(sys.argv[1]))"),
    ],
    ids=["dropped", "kept", "exit"],
)
async def test_a_client_that_nobody_closes_makes_no_noise_at_exit(begin: str, end: str, run: str) -> None:
    welcome = (
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",'
        b'"supportedVersions":["2026-07-28"],"capabilities":{}}}'
    )
    code = textwrap.dedent(DROPPED).format(begin=begin, end=end, run=run)
    async with web_server(always(response(welcome))) as server:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", code, server.url],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.stderr, done.stdout) == ("", "")


IMPORTS = """
    import asyncio, sys
    from antiphon import Client, Server

    async def main():
        async with Client(Server("tests")) as client:
            await client.ping()
        Client("http://127.0.0.1:9/mcp", auth="token")
        Client(["program"])

    asyncio.run(main())
    print([name for name in ("aiohttp", "httpx2", "yarl") if name in sys.modules])
"""


def test_only_a_channel_over_http_imports_an_http_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IMPORTS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
