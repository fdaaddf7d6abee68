"""Proxies: named by the environment or by the user, for http and for https."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon import Client, MemoryLogins, OAuth
from antiphon.errors import Unreachable
from antiphon.transport.client.http_client import HttpClient, HttpFailure
from antiphon.transport.client.http_proxies import environment_proxy
from tests.transport.client.test_http_clients import LIBRARIES, create, whole
from tests.transport.client.web_server import always, response, web_server

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("excluded", "host", "is_proxied"),
    [
        ("", "example.com", True),
        ("*", "example.com", False),
        ("other.org, *", "example.com", False),
        ("example.com", "example.com", False),
        ("example.com", "EXAMPLE.com", False),
        ("example.com", "www.example.com", False),
        ("example.com", "wwwexample.com", True),
        (".example.com", "www.example.com", False),
        (".example.com", "example.com", True),
        ("example.com:8080", "example.com", False),
        ("example.com:9090", "example.com", True),
        ("http://example.com", "example.com", False),
        ("localhost", "localhost", False),
        ("localhost", "a.localhost", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("10.0.0.0/8", "10.1.2.3", False),
        ("10.0.0.0/8", "11.1.2.3", True),
        ("10.0.0.0/8", "example.com", True),
        ("::1", "::1", False),
        ("[::1]", "::1", False),
        ("fe80::/10", "fe80::1", False),
        ("example.com:port,]", "example.com", True),
    ],
)
def test_the_environment_names_hosts_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, excluded: str, host: str, is_proxied: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", excluded)
    expected = "http://proxy:3128" if is_proxied else None
    assert environment_proxy("http", host, 8080) == expected


def test_the_environment_names_a_proxy_for_each_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_proxy("http", "example.com", None) is None
    monkeypatch.setenv("all_proxy", "http://other:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:2")
    assert environment_proxy("http", "example.com", None) == "http://other:1"
    assert environment_proxy("https", "example.com", None) == "http://secure:2"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("named", [True, False])
async def test_a_request_goes_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, library: str, named: bool
) -> None:
    async with web_server(always(response(b"from the proxy"))) as proxy:
        address = f"http://ada:s3cret@127.0.0.1:{proxy.port}"
        if not named:
            monkeypatch.setenv("HTTP_PROXY", address)
        http = create(library, proxy=address if named else None)
        assert await whole(await http.request("GET", "http://far.example/mcp?a=b", {})) == b"from the proxy"
        await http.close()
    (asked,) = proxy.asked
    assert asked.target == "http://far.example/mcp?a=b"
    assert asked.header("proxy-authorization") == "Basic YWRhOnMzY3JldA=="
    assert asked.header("authorization") is None


@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_environment_can_be_ignored(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with web_server(always(response(b"direct"))) as server:
        http = create(library, proxy=False)
        assert await whole(await http.request("GET", server.url, {})) == b"direct"
        await http.close()


@asynccontextmanager
async def tunnel(port: int) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that opens tunnels to one port of this machine; yields its address and the requests."""
    asked: list[str] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://ada:s3cret@127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked


@pytest.mark.parametrize("library", LIBRARIES)
async def test_https_goes_through_a_tunnel(
    library: str, certificate: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    of_server, of_client = certificate
    async with (
        web_server(always(response(b"safe")), tls=of_server) as server,
        tunnel(server.port) as (proxy, asked),
    ):
        http: HttpClient = create(library, proxy=proxy, tls=of_client)
        headers = {"authorization": "Bearer t0ken"}
        assert await whole(await http.request("GET", "https://localhost:7/mcp", headers)) == b"safe"
        await http.close()
    (opening,) = asked
    assert opening.startswith("CONNECT localhost:7 HTTP/1.1\r\n")
    assert "proxy-authorization: basic ywrhonmzy3jldA==".lower() in opening.lower()
    assert "t0ken" not in opening
    assert server.asked[0].header("authorization") == "Bearer t0ken"
    assert server.asked[0].header("proxy-authorization") is None


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_tunnel_that_is_refused_is_a_failure(library: str) -> None:
    async with web_server(always(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")) as proxy:
        http: HttpClient = create(library, proxy=f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(HttpFailure, match="407"):
            await http.request("GET", "https://far.example/mcp?token=s3cret", {})
        await http.close()
    assert proxy.asked[0].line == "CONNECT far.example:443 HTTP/1.1"


async def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="is not the address of an HTTP proxy"):
        Client("http://far.example/mcp", proxy="socks5://ada:s3cret@127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5://ada:s3cret@127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"socks5://\*\*\*@127.0.0.1:9 of the environment") as raised:
        async with Client("http://far.example/mcp"):
            pass
    assert "s3cret" not in str(raised.value)


def test_options_that_do_not_go_together_are_refused() -> None:
    import aiohttp
    import httpx2

    with pytest.raises(TypeError, match="http= takes an aiohttp.ClientSession or an httpx2.AsyncClient"):
        Client("http://far.example/mcp", http=object())  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match="auth= takes a bearer token, an OAuth or an httpx2.Auth, not a tuple"
    ):
        Client("http://far.example/mcp", auth=("ada", "s3cret"))  # type: ignore[arg-type]
    auth = OAuth(store=MemoryLogins())
    with pytest.raises(ValueError, match=r"headers= has an Authorization header.*only one of them"):
        Client("http://far.example/mcp", auth=auth, headers={"AUTHORIZATION": "Bearer s3cret"})

    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(ValueError, match="does not work with an aiohttp.ClientSession"):
                Client("http://far.example/mcp", http=session, auth=httpx2.BasicAuth("ada", "s3cret"))
            with pytest.raises(ValueError, match="Configure the http= client"):
                Client("http://far.example/mcp", http=session, tls=ssl.create_default_context())

    asyncio.run(main())
