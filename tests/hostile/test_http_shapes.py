"""Requests that two parsers could read in two ways: each has one answer, and the server stays up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from antiphon import Limits, Server
from tests.hostile.raw import MARKER, PING, post, read_statuses, send_raw
from tests.support.http import TIMEOUT_SECONDS
from tests.support.polling import until
from tests.support.serving import WAYS, Address

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = b"Host: 127.0.0.1\r\n"
CHUNKED = "Transfer-Encoding: chunked"
IN_CHUNKS = b"28\r\n" + PING + b"\r\n0\r\n\r\n"
REFUSED = [400]
"""The request is refused, and nothing after it is read."""
SERVED = [200, 404]
"""The request is served, and so is the one after it."""

GARBAGE = b"\x00\x01\x02\r\n\r\n"

SHAPES: dict[str, tuple[bytes, list[int]]] = {
    # Where does the body end?
    "a length and chunks": (post(b"0\r\n\r\n", "Content-Length: 5", CHUNKED), REFUSED),
    "chunks and a length": (post(b"0\r\n\r\n", CHUNKED, "Content-Length: 5"), REFUSED),
    "two lengths": (post(PING, "Content-Length: 40", "Content-Length: 41"), REFUSED),
    "the same length twice": (post(PING, "Content-Length: 40", "Content-Length: 40"), REFUSED),
    "a list of lengths": (post(PING, "Content-Length: 40, 40"), REFUSED),
    "a negative length": (post(PING, "Content-Length: -1"), REFUSED),
    "a length with a sign": (post(PING, "Content-Length: +40"), REFUSED),
    "a hexadecimal length": (post(PING, "Content-Length: 0x28"), REFUSED),
    "a length with a space": (post(PING, "Content-Length: 4 0"), REFUSED),
    "a length that overflows": (post(PING, "Content-Length: 99999999999999999999999"), REFUSED),
    "an empty length": (post(PING, "Content-Length: "), REFUSED),
    "identity coding": (post(PING, "Transfer-Encoding: identity"), REFUSED),
    "an unknown coding": (post(PING, "Transfer-Encoding: xchunked"), REFUSED),
    "chunked is not the last coding": (post(IN_CHUNKS, "Transfer-Encoding: chunked, identity"), REFUSED),
    "chunked twice": (post(IN_CHUNKS, CHUNKED, CHUNKED), REFUSED),
    "a space before the colon": (post(IN_CHUNKS, "Transfer-Encoding : chunked"), REFUSED),
    "a tab after the colon": (post(IN_CHUNKS, "Transfer-Encoding:\tchunked"), SERVED),
    # Chunks
    "chunks": (post(IN_CHUNKS, CHUNKED), SERVED),
    "chunk extensions": (post(b"28;a=b\r\n" + PING + b"\r\n0;x\r\n\r\n", CHUNKED), SERVED),
    "a line feed in an extension": (post(b"28;a\nb\r\n" + PING + b"\r\n0\r\n\r\n", CHUNKED), REFUSED),
    "a chunk size that overflows": (post(b"ffffffffffffffffff\r\n" + PING, CHUNKED), REFUSED),
    "a negative chunk size": (post(b"-1\r\n" + PING, CHUNKED), REFUSED),
    "a chunk size that is no number": (post(b"zz\r\n" + PING, CHUNKED), REFUSED),
    "a chunk that does not end": (post(b"28\r\n" + PING + b"XX0\r\n\r\n", CHUNKED), REFUSED),
    "line feeds between chunks": (post(b"28\n" + PING + b"\n0\n\n", CHUNKED), REFUSED),
    # Lines of the head
    "a folded header": (post(PING, "X-A: b\r\n c"), REFUSED),
    "a folded host": (post().replace(HOST, b"Host: evil\r\n 127.0.0.1\r\n"), REFUSED),
    "line feeds only": (post().replace(b"\r\n", b"\n"), REFUSED),
    "a line feed in a header": (post(PING, "X-A: b\nX-C: d"), REFUSED),
    "a carriage return in a header": (post(PING, "X-A: b\rX-C: d"), REFUSED),
    "NUL in a value": (post(PING, "X-A: b\0c"), REFUSED),
    "NUL in a name": (post(PING, "X\0A: b"), REFUSED),
    "a space in a name": (post(PING, "X A: b"), REFUSED),
    "a header without a colon": (post(PING, "XA"), REFUSED),
    "a header without a name": (post(PING, ": b"), REFUSED),
    "a space before the first header": (post().replace(b"Host:", b" Host:"), REFUSED),
    # The request line
    "HTTP/0.9 without an end": (b"GET /mcp\r\n", REFUSED),
    "HTTP/1.2": (post().replace(b"HTTP/1.1", b"HTTP/1.2"), REFUSED),
    "HTTP/9.9": (post().replace(b"HTTP/1.1", b"HTTP/9.9"), REFUSED),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", REFUSED),
    "an absolute URI": (post().replace(b"POST /mcp", b"POST http://127.0.0.1/mcp"), SERVED),
    "OPTIONS *": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", [404, 404]),
    "OPTIONS": (b"OPTIONS /mcp HTTP/1.1\r\n" + HOST + b"\r\n", [405, 404]),
    "CONNECT": (b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED),
    "TRACE": (b"TRACE /mcp HTTP/1.1\r\n" + HOST + b"\r\n", [405, 404]),
    "an unknown method": (b"BREW /mcp HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED),
    "a method in lower case": (post().replace(b"POST", b"post"), REFUSED),
    "a path that is not ASCII": (post().replace(b"/mcp", b"/m\xe9"), REFUSED),
    "NUL in a path": (post().replace(b"/mcp", b"/mcp%00"), [404, 404]),
    "a control character in a path": (post().replace(b"/mcp", b"/m\x01cp"), REFUSED),
    "no path": (post().replace(b" /mcp ", b"  "), REFUSED),
    "a relative path": (post().replace(b" /mcp ", b" mcp "), REFUSED),
    "a path with two slashes": (post().replace(b" /mcp ", b" //mcp "), [404, 404]),
    # Around requests
    "100-continue": (post(PING, "Expect: 100-continue"), [100, *SERVED]),
    "another expectation": (post(PING, "Expect: 200-ok"), SERVED),
    "an upgrade with a body": (post(PING, "Connection: Upgrade", "Upgrade: h2c"), REFUSED),
    "blank lines before a request": (b"\r\n\r\n" + post(), SERVED),
    "a GET with a body": (b"GET /mcp HTTP/1.1\r\n" + HOST + b"Content-Length: 40\r\n\r\n" + PING, [405, 404]),
    "ten requests at once": (post() * 10, [200] * 10 + [404]),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100, REFUSED),
    "garbage": (bytes(range(256)), REFUSED),
}

STRICTER: dict[str, tuple[bytes, list[int]]] = {
    "HTTP/0.9": (b"GET /mcp\r\n\r\n", REFUSED),
    "HTTP/2.0": (post().replace(b"HTTP/1.1", b"HTTP/2.0"), REFUSED),
    "an upgrade to WebSocket": (
        b"GET /mcp HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        [405],
    ),
    "a trailer": (post(IN_CHUNKS[:-2] + b"Authorization: Bearer x\r\n\r\n", CHUNKED), REFUSED),
    "another coding before chunked": (post(IN_CHUNKS, "Transfer-Encoding: gzip, chunked"), REFUSED),
    "another coding in a line of its own": (post(IN_CHUNKS, "Transfer-Encoding: gzip", CHUNKED), REFUSED),
    "a coding without a name": (post(IN_CHUNKS, "Transfer-Encoding: , chunked"), REFUSED),
    "a hundred requests at once": (post() * 100, []),
    # A request that is refused does not take the answers of those before it.
    "a request, then garbage": (post() + GARBAGE, [200, 400]),
    "three requests, then garbage": (post() * 3 + GARBAGE, [200, 200, 200, 400]),
    "a request of ASGI, then garbage": (post(IN_CHUNKS, CHUNKED) + GARBAGE, [200, 400]),
    "a request, then a broken body": (post() + post(b"zz\r\n" + PING, CHUNKED), [200, 400]),
    "two requests, then a broken body": (post() * 2 + post(b"zz\r\n" + PING, CHUNKED), [200, 200, 400]),
    "a request, then a head that is too large": (post() + post(PING, "X-A: " + "x" * 199_999), [200, 431]),
    "a request, then another coding": (
        post() + post(IN_CHUNKS, "Transfer-Encoding: gzip, chunked"),
        [200, 400],
    ),
    "a last request, then garbage": (post(PING, "Connection: close") + GARBAGE, [200]),
}
"""Shapes that our own server answers otherwise than a plain uvicorn."""


TOO_SHORT = {
    "a body that is too short": post(PING, length=1000),
    "the largest chunk size": post(b"7fffffffffffffff\r\n" + PING, CHUNKED),
}
"""Shapes whose body does not come to its end."""


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(way: str) -> AsyncIterator[Address]:
    async with WAYS[way](Server("tests")) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[Address]:
    async with WAYS["run"](Server("tests")) as address:
        yield address


async def test_each_shape_has_one_answer(served: Address, subtests: pytest.Subtests) -> None:
    for name, (data, expected) in SHAPES.items():
        with subtests.test(name):
            assert (await send_raw(served.port, data, MARKER)).statuses == expected
            assert (await send_raw(served.port, post(), MARKER)).statuses == SERVED


async def test_a_shape_that_comes_byte_by_byte_has_the_same_answer(
    run: Address, subtests: pytest.Subtests
) -> None:
    for name, (data, expected) in SHAPES.items():
        with subtests.test(name):
            assert (await send_raw(run.port, *split(data), MARKER)).statuses == expected


async def test_a_body_that_does_not_end_is_answered_with_408(way: str, subtests: pytest.Subtests) -> None:
    async with WAYS[way](Server("tests", limits=Limits(body_timeout=0.1))) as address:
        for name, data in TOO_SHORT.items():
            with subtests.test(name):
                assert (await send_raw(address.port, data, MARKER)).statuses == [408]
                assert (await send_raw(address.port, *split(data), MARKER)).statuses == [408]


async def test_our_own_server_is_stricter(run: Address, subtests: pytest.Subtests) -> None:
    for name, (data, expected) in STRICTER.items():
        with subtests.test(name):
            assert (await send_raw(run.port, data, MARKER)).statuses == expected
            assert (await send_raw(run.port, post(), MARKER)).statuses == SERVED


def split(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


async def test_a_client_that_closes_its_half_is_disconnected(served: Address) -> None:
    assert (await send_raw(served.port, post()[:50], half_close=True)).statuses == []
    assert (await send_raw(served.port, post(), MARKER)).statuses == SERVED


@pytest.mark.parametrize(
    "tail", [b"0\r\nX: " + b"x" * 200_000, b"1;" + b"x" * 200_000], ids=["trailer", "extension"]
)
async def test_what_comes_beside_a_body_is_bounded(run: Address, tail: bytes) -> None:
    head = post(b"28\r\n" + PING + b"\r\n", CHUNKED)
    assert (
        await send_raw(run.port, head, *(tail[place : place + 9999] for place in range(0, len(tail), 9999)))
    ).statuses == REFUSED


@pytest.mark.parametrize("behind", [GARBAGE, post() + GARBAGE], ids=["garbage", "a request, then garbage"])
@pytest.mark.parametrize("lines", [(), ("Expect: 200-ok",)], ids=["plain", "ASGI"])
async def test_garbage_that_arrives_while_a_call_runs_does_not_take_its_answer(
    lines: tuple[str, ...], behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server, runs, may_end = Server("tests"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        runs.set()
        await may_end.wait()
        return "the answer"

    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{}}}'
    async with WAYS["run"](server) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                writer.write(post(call, "Accept: application/json, text/event-stream", *lines))
                await runs.wait()
                writer.write(behind)
                await until(lambda: "Refused an HTTP request" in caplog.text)
                may_end.set()
                raw = await reader.read(-1)
        finally:
            writer.transport.abort()
    assert read_statuses(raw) == ([200, 400] if behind is GARBAGE else [200, 200, 400])
    assert raw.index(b"the answer") < raw.index(b"not valid HTTP")


async def test_a_connection_whose_client_sends_too_many_requests_at_once_is_closed(run: Address) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", run.port)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            writer.write(post() * 1000)
            with contextlib.suppress(ConnectionError):
                raw = b""
                while data := await reader.read(65_536):
                    raw += data
    finally:
        writer.transport.abort()
    assert len(read_statuses(raw)) < 1000
    assert (await send_raw(run.port, post(), MARKER)).statuses == SERVED
