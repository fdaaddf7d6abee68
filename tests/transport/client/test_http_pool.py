"""The pool of connections is shared in an event loop, and closed with its last client."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import aiohttp
import pytest

from antiphon import Client, Server
from antiphon.errors import Unreachable
from antiphon.transport.client import http_aiohttp, http_connecting, http_direct
from antiphon.transport.client.http_aiohttp import AiohttpClient
from antiphon.transport.client.http_client import HttpClient
from antiphon.transport.client.http_direct import DirectClient
from tests.support.polling import until
from tests.support.serving import serving
from tests.transport.client.web_server import Asked, always, response, web_server

Kind = type[AiohttpClient] | type[DirectClient]


@pytest.fixture(params=[AiohttpClient, DirectClient])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


def no_pool() -> bool:
    loop = asyncio.get_running_loop()
    return loop not in http_aiohttp.pools and loop not in http_direct.pools


async def fetch(http: HttpClient, url: str) -> bytes:
    found = await http.request("GET", url, {})
    try:
        return await found.read()
    finally:
        await found.close()


async def test_clients_share_connections_and_the_last_one_closes_them(kind: Kind) -> None:
    async with web_server(always(response(b"hi"))) as server:
        first, second = kind(), kind()
        assert await fetch(first, server.url) == await fetch(second, server.url) == b"hi"
        assert [asked.connection for asked in server.asked] == [0, 0]
        await first.close()
        await first.close()
        assert await fetch(second, server.url) == b"hi"
        assert server.open_connections == 1
        await second.close()
        await until(lambda: server.open_connections == 0)
        third = kind()
        await fetch(third, server.url)
        await third.close()
    assert no_pool()


async def test_a_client_that_is_dropped_gives_up_its_share(kind: Kind) -> None:
    async with web_server(always(response(b"hi"))) as server:
        http = kind()
        await fetch(http, server.url)
        del http
        gc.collect()
        await until(lambda: server.open_connections == 0)
    assert no_pool()


async def test_connections_that_have_been_idle_for_long_are_not_used(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connecting, "IDLE_SECONDS", 1e-9)
    async with web_server(always(response(b"hi"))) as server:
        http = kind()
        for _ in range(2):
            await fetch(http, server.url)
        await http.close()
    assert [asked.connection for asked in server.asked] == [0, 1]


async def test_a_flood_of_cookies_is_bounded() -> None:
    numbers = iter(range(10**6))

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        cookies = (f"set-cookie: c{next(numbers)}={'x' * 1000}" for _ in range(100))
        writer.write(response(b"hi", "200 OK", "text/plain", *cookies))

    jar = aiohttp.CookieJar(unsafe=True)
    async with web_server(answer) as server, aiohttp.ClientSession(cookie_jar=jar) as session:
        http = AiohttpClient(session)
        for _ in range(10):
            await fetch(http, server.url)
        await http.close()
    sent = [asked.header("cookie") or "" for asked in server.asked]
    assert sent[-1]
    assert max(map(len, sent)) < 10_000
    assert len(jar) < 200


async def test_a_session_of_the_user_is_used_and_left_open() -> None:
    server = Server("tests")

    @server.tool
    def whoami() -> str:
        return "ada"

    async with serving(server) as address, aiohttp.ClientSession(headers={"x-mine": "1"}) as session:
        async with Client(address.url, http=session) as client:
            assert (await client.call("whoami")).text == "ada"
        assert not session.closed


async def test_a_session_that_the_user_has_closed_is_a_failure() -> None:
    async with aiohttp.ClientSession() as session:
        pass
    with pytest.raises(Unreachable, match="the session is closed"):
        async with Client("http://127.0.0.1:9/mcp", http=session):
            pass


async def test_a_session_can_reach_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "web.sock")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b"hi", "200 OK", "text/plain", "connection: close"))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_unix_server(answer, path)
    async with listening, aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session:
        assert await fetch(AiohttpClient(session), "http://localhost/mcp") == b"hi"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_port_without_a_server_refuses_the_connection(host: str) -> None:
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://{host}:{bound.getsockname()[1]}/mcp"
        with pytest.raises(Unreachable, match=f"No connection to {url}: Connection refused"):
            async with Client(url):
                pass


async def test_a_proxy_that_is_not_there_is_named() -> None:
    with pytest.raises(Unreachable, match="the proxy cannot be reached: Connection refused"):
        async with Client("http://far.example/mcp", proxy="http://127.0.0.1:9"):
            pass


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
