"""A connection reads odd responses, and carries the next request only if nothing is left of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from antiphon.transport.client import http_connection
from antiphon.transport.client.http_client import HttpFailure
from antiphon.transport.client.http_direct import DirectClient
from tests.support.polling import forever, turns, until
from tests.transport.client.web_server import Asked, always, response, web_server


@pytest.fixture
async def http() -> AsyncIterator[DirectClient]:
    client = DirectClient()
    yield client
    await client.close()


async def fetch(http: DirectClient, url: str, method: str = "POST") -> tuple[int, bytes]:
    found = await http.request(method, url, {}, b"x" if method == "POST" else None)
    body = b""
    try:
        while piece := await found.read():
            body += piece
    finally:
        await found.close()
    return found.status, body


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold", b"old"),
        (response(b"one", "200 OK", "text/plain", "connection: close"), b"one"),
        (response(b"one") + response(b"two"), b"one"),
        (response(b"one") + b"garbage", b"one"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd", b"abc"),
    ],
    ids=[
        "no length",
        "HTTP/1.0",
        "connection: close",
        "a second response",
        "garbage",
        "more than its length",
    ],
)
async def test_a_connection_is_not_used_again(http: DirectClient, data: bytes, body: bytes) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if b"length" not in data:
            await writer.drain()
            writer.close()

    async with web_server(answer) as server:
        for _ in range(2):
            assert await fetch(http, server.url) == (200, body)
        assert [asked.connection for asked in server.asked] == [0, 1]


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + response(b"hi"),
            200,
            b"hi",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", 202, b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2;x=1\r\nab\r\n1\r\nc\r\n0\r\nx-trailer: 1\r\n\r\n",
            200,
            b"abc",
        ),
    ],
    ids=["interim", "no content", "empty", "chunks and a trailer"],
)
async def test_a_connection_is_used_again(http: DirectClient, data: bytes, status: int, body: bytes) -> None:
    async def byte_by_byte(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for n in range(len(data)):
            writer.write(data[n : n + 1])
            await turns()

    for answer in (always(data), byte_by_byte):
        async with web_server(answer) as server:
            for _ in range(2):
                assert await fetch(http, server.url) == (status, body)
            assert [asked.connection for asked in server.asked] == [0, 0]


async def test_headers_of_an_interim_response_and_trailers_are_not_those_of_the_response(
    http: DirectClient,
) -> None:
    data = (
        b"HTTP/1.1 103 Early Hints\r\nx-a: early\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"0\r\nx-b: late\r\nmcp-session-id: late\r\n\r\n"
    )
    async with web_server(always(data)) as server:
        found = await http.request("GET", server.url, {})
        assert await found.read() == b""
        assert [found.header(name) for name in ("x-a", "x-b", "mcp-session-id")] == [None, None, None]
        await found.close()


async def test_what_a_server_sends_unasked_closes_the_connection(http: DirectClient) -> None:
    async with web_server(always(response(b"hi"))) as server:
        await fetch(http, server.url)
        server.connections[0].write(response(b"poison"))
        await until(lambda: server.open_connections == 0 or server.connections[0].transport.is_closing())
        assert await fetch(http, server.url) == (200, b"hi")
        assert [asked.connection for asked in server.asked] == [0, 1]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nx: a\r\n continued\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20_000,
        b"HTTP/1.1 104 Upload\r\ncontent-length: 5\r\n\r\nEVILS" + response(b"ok"),
        b"HTTP/1.1 200 OK\r\nmcp-session-id: " + b"x" * 20_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 2_000_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=" + b"y" * 2_000_000,
    ],
    ids=[
        "another protocol",
        "two framings",
        "two lengths",
        "negative",
        "folded",
        "bad name",
        "endless interim",
        "interim with a body",
        "long header",
        "many headers",
        "endless trailer",
        "endless chunk head",
    ],
)
async def test_a_response_that_could_be_read_in_two_ways_is_refused(http: DirectClient, data: bytes) -> None:
    async with web_server(always(data)) as server:
        with pytest.raises(HttpFailure, match="not valid HTTP"):
            await fetch(http, server.url)
        await until(lambda: server.connections[0].transport.is_closing())


async def test_a_body_that_nobody_reads_waits_at_the_server(
    http: DirectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "MAX_BUFFERED_BYTES", 64 * 1024)
    size, written = 64 * 1024 * 1024, 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    async with web_server(answer) as server:
        found = await http.request("GET", server.url, {})
        looks: list[int] = []

        def waits() -> bool:
            """Whether the server, which runs in this loop, has written nothing between the last looks."""
            looks.append(written)
            return len(looks) >= 10 and set(looks[-10:]) == {written}

        await until(waits)
        assert written < size
        assert found.size < 1024 * 1024  # type: ignore[attr-defined]
        received = 0
        while piece := await found.read():
            received += len(piece)
        assert received == size
        await found.close()


async def test_a_large_body_is_sent_whole(http: DirectClient) -> None:
    body = bytes(range(256)) * 8192
    async with web_server(always(response(b"hi"))) as server:
        found = await http.request("POST", server.url, {}, body)
        await found.close()
        assert server.asked[0].body == body


async def test_a_request_that_may_be_repeated_is_sent_again_on_another_connection(http: DirectClient) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if len(server.asked) == 2:
            writer.close()
        else:
            writer.write(response(b"hi"))

    async with web_server(answer) as server:
        for _ in range(2):
            assert await fetch(http, server.url, "GET") == (200, b"hi")
        assert [asked.connection for asked in server.asked] == [0, 0, 1]


async def test_a_caller_that_gives_up_closes_its_connection(http: DirectClient) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.connection == 0:
            await forever()
        writer.write(response(b"hi"))

    async with web_server(answer) as server:
        asking = asyncio.create_task(fetch(http, server.url))
        await until(lambda: server.asked)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: server.is_left(0))
        assert await fetch(http, server.url) == (200, b"hi")
        assert [asked.connection for asked in server.asked] == [0, 1]


async def test_a_server_that_answers_before_a_request_is_sent_whole_is_heard(http: DirectClient) -> None:
    read, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\n\r\ntoo large")
        writer.write_eof()
        await writer.drain()
        await read.wait()  # and reads nothing of the body
        writer.transport.abort()
        ended.set()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1024)
    async with listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        found = await http.request("POST", url, {}, b"x" * 20_000_000)
        assert (found.status, await found.read(), await found.read()) == (413, b"too large", b"")
        await found.close()
        read.set()
        await ended.wait()
        await turns()


async def test_after_an_early_refusal_of_a_large_request_the_connection_is_not_used(
    http: DirectClient,
) -> None:
    async with web_server(always(response(b"no", "413 Content Too Large"))) as server:
        for _ in range(2):
            found = await http.request("POST", server.url, {}, b"x" * 300_000)
            assert await found.read() == b"no"
            await found.close()
        assert [asked.connection for asked in server.asked] == [0, 1]


async def test_a_reader_hears_that_its_response_was_closed(http: DirectClient) -> None:
    async with web_server(always(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")) as server:
        found = await http.request("GET", server.url, {})
        assert await found.read() == b"ab"
        reading = asyncio.create_task(found.read())
        await turns()
        await found.close()
        for read in (reading, found.read()):
            with pytest.raises(HttpFailure, match="closed"):
                await asyncio.wait_for(read, 30)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\npart"], ids=["waiting", "reading"])
async def test_a_client_that_is_closed_sends_nothing_again_and_ends_its_responses(head: bytes) -> None:
    http = DirectClient()

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"hi") if len(server.asked) == 1 else head)

    async with web_server(answer) as server:
        await fetch(http, server.url, "GET")  # the connection is used again
        if head:
            found = await http.request("GET", server.url, {})
            assert await found.read() == b"part"
            waiting: asyncio.Future[object] = asyncio.ensure_future(found.read())
        else:
            waiting = asyncio.ensure_future(fetch(http, server.url, "GET"))
        await until(lambda: len(server.asked) == 2)
        await http.close()
        with pytest.raises(HttpFailure):
            await asyncio.wait_for(waiting, 30)
        with pytest.raises(HttpFailure, match="the client is closed"):
            await http.request("GET", server.url, {})
        assert len(server.asked) == 2
        await until(lambda: server.is_left(0))


def test_a_client_whose_event_loop_has_ended_can_be_closed() -> None:
    async def use() -> DirectClient:
        async with web_server(always(response(b"hi"))) as server:
            http = DirectClient()
            await fetch(http, server.url)
        return http

    http = asyncio.run(use())

    async def other() -> None:
        with pytest.raises(HttpFailure, match="another event loop"):
            await http.request("GET", "http://127.0.0.1:9/", {})
        await http.close()

    asyncio.run(other())


async def test_a_header_that_cannot_be_encoded_is_a_failure(http: DirectClient) -> None:
    with pytest.raises(HttpFailure, match="cannot be sent"):
        await http.request("GET", "http://127.0.0.1:9/", {"x": "\ud800"})
