"""All HTTP clients behind the seam send the same requests, and read the same responses and failures."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from antiphon.transport.client import http_connecting
from antiphon.transport.client.http_aiohttp import AiohttpClient
from antiphon.transport.client.http_client import HttpClient, HttpFailure, HttpResponse, InvalidUrl
from antiphon.transport.client.http_direct import DirectClient
from antiphon.transport.client.http_httpx2 import Httpx2Client
from tests.support.polling import turns
from tests.transport.client.web_server import Asked, always, response, web_server

LIBRARIES = ("direct", "aiohttp", "httpx2")


def create(library: str, **options: Any) -> HttpClient:
    given = {"tls": None, "proxy": None, "connect_timeout": 5.0, **options}
    if library == "direct":
        return DirectClient(**given)
    return AiohttpClient(**given) if library == "aiohttp" else Httpx2Client(None, auth=None, **given)


@pytest.fixture(params=LIBRARIES)
async def http(request: pytest.FixtureRequest) -> AsyncIterator[HttpClient]:
    client = create(request.param)
    yield client
    await client.close()


async def whole(response: HttpResponse) -> bytes:
    read = b""
    try:
        while piece := await response.read():
            read += piece
    finally:
        await response.close()
    return read


async def test_a_response_has_a_status_headers_and_a_body(http: HttpClient) -> None:
    async with web_server(always(response(b"abc", "404 Not Found", "text/plain", "x-a: 1"))) as server:
        found = await http.request("POST", server.url, {"x-mine": "2"}, b"hello")
        assert (found.status, found.header("X-A"), found.header("x-b")) == (404, "1", None)
        assert await whole(found) == b"abc"
    (asked,) = server.asked
    assert (asked.line, asked.header("x-mine"), asked.body) == ("POST /mcp HTTP/1.1", "2", b"hello")


async def test_a_body_is_read_as_it_comes_and_connections_are_used_again(http: HttpClient) -> None:
    goes_on = asyncio.Event()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await goes_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with web_server(answer) as server:
        for _ in range(2):
            goes_on.clear()
            found = await http.request("GET", server.url, {})
            assert await found.read() == b"one"
            goes_on.set()
            assert await whole(found) == b"two"
        assert [asked.connection for asked in server.asked] == [0, 0]


async def test_a_body_that_is_not_read_closes_its_connection(http: HttpClient) -> None:
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000
    async with web_server(always(endless)) as server:
        for _ in range(2):
            found = await http.request("GET", server.url, {})
            await found.close()
        assert [asked.connection for asked in server.asked] == [0, 1]


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("http://{}/mcp", "/mcp"),
        ("http://{}", "/"),
        ("http://{}/mcp/?a=b%2Fc+d&e=%3D#part", "/mcp/?a=b%2Fc+d&e=%3D"),
        ("http://{}/a%2Fb/(c)/~d", "/a%2Fb/(c)/~d"),
        ("http://{}/größe?q=ü", "/gr%C3%B6%C3%9Fe?q=%C3%BC"),
        ("http://{}/with space", "/with%20space"),
    ],
)
@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_url_is_sent_as_it_was_written(library: str, address: str, target: str) -> None:
    http = create(library)
    async with web_server(always(response())) as server:
        await whole(await http.request("GET", address.format(f"127.0.0.1:{server.port}"), {}))
        await http.close()
    assert server.asked[0].target == target
    assert server.asked[0].header("host") == f"127.0.0.1:{server.port}"


async def test_a_user_and_a_password_become_a_header(http: HttpClient) -> None:
    async with web_server(always(response())) as server:
        url = server.url.replace("http://", "http://ada:s%20%C3%BC@")
        await whole(await http.request("GET", url, {"authorization": "Bearer other"}))
    assert [value for name, value in server.asked[0].headers if name.lower() == "authorization"] == [
        "Basic YWRhOnMgw7w="
    ]


async def test_an_ipv6_address_is_reached(http: HttpClient) -> None:
    with contextlib.suppress(OSError):
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        async with web_server(always(response()), host="::1") as server:
            await whole(await http.request("GET", server.url, {}))
            assert server.asked[0].header("host") == f"[::1]:{server.port}"


async def test_no_redirect_is_followed_and_no_body_is_decoded(http: HttpClient) -> None:
    moved = response(b"\x1f\x8b", "302 Found", "text/plain", "location: /other", "content-encoding: gzip")
    async with web_server(always(moved)) as server:
        found = await http.request("GET", server.url, {})
        assert (found.status, found.header("location")) == (302, "/other")
        assert await whole(found) == b"\x1f\x8b"
    assert len(server.asked) == 1


async def test_the_client_of_a_user_follows_no_redirect_either() -> None:
    moved = response(b"", "307 Temporary Redirect", "text/plain", "location: /other")
    async with (
        web_server(always(moved)) as server,
        httpx2.AsyncClient(follow_redirects=True) as theirs,
    ):
        http = Httpx2Client(theirs, auth=None, tls=None, proxy=None, connect_timeout=60.0)
        found = await http.request("POST", server.url, {"authorization": "Bearer s3cret"}, b"x")
        assert found.status == 307
        await found.close()
    assert len(server.asked) == 1


async def test_several_challenges_are_one_header(http: HttpClient) -> None:
    lines = ("www-authenticate: Basic realm=x", 'www-authenticate: Bearer scope="a b"')
    async with web_server(always(response(b"", "401 Unauthorized", "text/plain", *lines))) as server:
        found = await http.request("GET", server.url, {})
        assert found.header("www-authenticate") == 'Basic realm=x, Bearer scope="a b"'
        await found.close()


async def test_cookies_of_the_server_are_sent_back_by_the_same_client_only() -> None:
    async with web_server(
        always(response(b"", "200 OK", "text/plain", "set-cookie: node=7; Path=/"))
    ) as server:
        for library in LIBRARIES:
            first, second = create(library), create(library)
            for client in (first, first, second):
                await whole(await client.request("GET", server.url, {}))
            await first.close()
            await second.close()
            assert [asked.header("cookie") for asked in server.asked] == [None, "node=7", None]
            assert len({asked.header("user-agent") for asked in server.asked}) == 1
            server.asked.clear()


async def refusal(http: HttpClient, url: str, **headers: str) -> HttpFailure:
    with pytest.raises(HttpFailure) as raised:
        await whole(await http.request("POST", url, headers, b"x"))
    assert "s3cret" not in str(raised.value)
    return raised.value


async def test_nothing_that_listens_is_a_failure(http: HttpClient) -> None:
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        await refusal(http, f"http://ada:s3cret@127.0.0.1:{bound.getsockname()[1]}/?token=s3cret")


async def test_a_name_that_nobody_knows_is_a_failure(http: HttpClient) -> None:
    await refusal(http, "http://ada:s3cret@no-such-host.invalid/?token=s3cret")


@pytest.mark.parametrize("url", ["http://ada:s3cret@[::1/mcp", "http://ada:s3cret@host:port/", "http://"])
async def test_a_url_that_is_none_is_a_failure(http: HttpClient, url: str) -> None:
    await refusal(http, url)


async def test_an_invalid_url_has_an_error_of_its_own(http: HttpClient) -> None:
    assert isinstance(await refusal(http, "http://ada:s3cret@host:port/"), InvalidUrl)


@pytest.mark.parametrize("library", ["direct", "aiohttp"])
@pytest.mark.parametrize(
    "address", ["127.1", "2130706433", "0x7f000001", "0x7f.1", "1.2.3", "127.0.0.1.", "127.0.0.1:0"]
)
async def test_an_address_that_checks_of_addresses_do_not_know_is_no_url(library: str, address: str) -> None:
    http = create(library)
    assert isinstance(
        await refusal(http, f"http://{address}/"), InvalidUrl if library == "direct" else HttpFailure
    )
    await http.close()


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64 + ".example", "-.example"])
async def test_a_name_that_no_host_can_have_is_a_failure(http: HttpClient, host: str) -> None:
    for scheme in ("http", "https"):
        await refusal(http, f"{scheme}://{host}.invalid/")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
async def test_a_request_without_a_body_says_so(http: HttpClient, method: str) -> None:
    async with web_server(always(response())) as server:
        await whole(await http.request(method, server.url, {}))
        await whole(await http.request("GET", server.url, {}))
    assert server.asked[0].header("content-length") in ("0", None if method == "DELETE" else "0")
    assert server.asked[1].header("content-length") is None


async def test_a_method_cannot_hold_another_request(http: HttpClient) -> None:
    async with web_server(always(response())) as server:
        with pytest.raises((HttpFailure, ValueError)):
            await http.request("GET / HTTP/1.1\r\nhost: x\r\n\r\nGET", server.url, {})
    assert server.asked == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
    ],
    ids=["nothing", "no HTTP", "cut off", "bad chunk", "long header", "many headers"],
)
async def test_a_response_that_is_none_is_a_failure(http: HttpClient, data: bytes) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    async with web_server(answer) as server:
        await refusal(http, server.url + "?token=s3cret")


async def test_tls_to_a_server_without_it_is_a_failure_that_names_ssl(http: HttpClient) -> None:
    async with web_server(always(response())) as server:
        assert "SSL" in str(await refusal(http, server.url.replace("http:", "https:")))


async def test_a_header_cannot_hold_another_header(http: HttpClient) -> None:
    async with web_server(always(response())) as server:
        await refusal(http, server.url, a="b\r\nc: d")
    assert server.asked == []


@pytest.mark.parametrize("library", LIBRARIES)
async def test_connecting_has_a_deadline(library: str) -> None:
    http = create(library, connect_timeout=0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]  # they fill the queue of the socket
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        await refusal(http, f"http://127.0.0.1:{full.getsockname()[1]}/")
        for one in waiting:
            one.close()
    await http.close()


async def test_a_connection_that_the_server_closed_is_not_used_again(http: HttpClient) -> None:
    async with web_server(always(response())) as server:
        for number in range(3):
            await whole(await http.request("POST", server.url, {}, b"x"))
            server.hang_up()
            await asyncio.wait_for(_closed(server.connections[number]), 30)
        assert [asked.connection for asked in server.asked] == [0, 1, 2]


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    for _ in range(10):  # the other side of the connection is in this loop too
        await turns()


async def test_a_connection_closed_while_the_program_blocked_is_not_used_again(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connecting, "QUIET_SECONDS", 0)
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    received = b""
                    while not received.endswith(b"whole"):
                        received += connection.recv(65536)
                    connection.sendall(response())
                closed.set()

        serving = threading.Thread(target=serve)
        serving.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        await whole(await http.request("POST", url, {}, b"whole"))
        closed.wait(60)  # the loop sees nothing meanwhile
        await whole(await http.request("POST", url, {}, b"whole"))
        serving.join(60)


async def test_a_request_whose_connection_breaks_is_not_sent_twice(http: HttpClient) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.body == b"break":
            writer.close()
        else:
            writer.write(response())

    async with web_server(answer) as server:
        await whole(await http.request("POST", server.url, {}, b"first"))
        with pytest.raises(HttpFailure):
            await http.request("POST", server.url, {}, b"break")
        assert [asked.body for asked in server.asked] == [b"first", b"break"]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_tls_settings_are_used(
    library: str, certificate: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    of_server, of_client = certificate
    trusting, other = create(library, tls=of_client), create(library)
    async with web_server(always(response(b"safe")), tls=of_server) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert await whole(await trusting.request("GET", url, {})) == b"safe"
        # The connection of the first client is open, and of no use to a client that does not trust it.
        assert "SSL" in str(await refusal(other, url)) or "certificate" in str(await refusal(other, url))
        await trusting.close()
        await other.close()
