"""Answers that nobody reads: the server drops them with their connections. Slow readers are served."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from antiphon import HttpRequest, HttpResponse, Limits, Server
from tests.hostile.raw import MARKER, PING, post, send_raw
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.serving import WAYS, Address

MIB = 1024 * 1024
SERVED = [200, 404]
JSON_ONLY, STREAMS = "Accept: application/json", "Accept: text/event-stream"
LONG = 600.0
"""A deadline that passes only if a test moves the time."""

ended = 0


def build(**limits: Any) -> Server:
    server = Server("tests", limits=Limits(**{"body_timeout": 0.4, **limits}))

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    @server.tool
    async def flood() -> AsyncIterator[str]:
        global ended
        try:
            while True:
                yield "x" * 100_000
        finally:
            ended += 1

    @server.route("/page")
    async def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("x" * 8 * MIB)

    return server


def call(tool: str, accept: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments, "stream": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return post(body, accept)


UNREAD = {
    "a JSON answer": call("large", JSON_ONLY, size=8 * MIB),
    "an answer on a stream": call("large", STREAMS, size=8 * MIB),
    "a stream without an end": call("flood", "Accept: application/json, text/event-stream"),
    "a page": b"GET /page HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "small answers": post(PING) * 10,
}


def connect(port: int, buffer_bytes: int = 4096) -> socket.socket:
    """Open a connection whose buffer is small."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    connection.connect(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


def is_reset(connection: socket.socket) -> bool:
    """Return whether the server has reset a connection."""
    try:
        connection.getpeername()
    except OSError:
        return True
    return False


def open_connections(address: Address) -> int:
    return len(address.runner.server_state.connections)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [kind for kind in UNREAD if kind != "small answers"])
async def test_a_connection_whose_answer_nobody_reads_is_aborted(
    way: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with WAYS[way](build()) as address:
        with ExitStack() as stack:
            readers = [stack.enter_context(connect(address.port)) for _ in range(10)]
            for reader in readers:
                reader.sendall(UNREAD[kind])
            # Nobody closes these connections but the server, and it does not wait until they are read.
            await until(lambda: all(is_reset(reader) for reader in readers))
            await until(lambda: open_connections(address) == 0)
            await until(lambda: address.under_way == 0)
            assert (await send_raw(address.port, post(), MARKER)).statuses == SERVED
    assert "ASGI" not in caplog.text
    assert len([record for record in caplog.records if record.name == "antiphon"]) <= 1


async def test_answers_that_wait_behind_each_other_are_not_kept_either() -> None:
    """Each answer is small, and the client sends requests until the server no longer takes them."""
    async with WAYS["run"](build()) as address:
        with connect(address.port) as connection:
            request = post(b'{"jsonrpc":"2.0","id":"%s","method":"nothing"}' % (b"x" * 20_000))
            loop = asyncio.get_running_loop()
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(_send_for_ever(loop, connection, request), 60)
            await until(lambda: open_connections(address) == 0)


async def _send_for_ever(loop: asyncio.AbstractEventLoop, connection: socket.socket, data: bytes) -> None:
    while True:
        await loop.sock_sendall(connection, data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["a JSON answer", "an answer on a stream", "a page"])
async def test_a_client_that_reads_slowly_gets_the_whole_answer(way: str, kind: str) -> None:
    """It takes several times as long as an answer may lie unread."""
    time = LoopTime.here()
    async with WAYS[way](build(body_timeout=LONG, call_timeout=10**9)) as address:
        with connect(address.port, 65536) as connection:
            connection.sendall(UNREAD[kind].replace(b"\r\nHost", b"\r\nConnection: close\r\nHost", 1))
            loop, received = asyncio.get_running_loop(), 0
            while piece := await loop.sock_recv(connection, 20_000):
                received += len(piece)
                if received < 4 * MIB:
                    time.advance(LONG / 20)
        assert received > 8 * MIB


@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_ends_when_nobody_reads_its_stream(way: str) -> None:
    async with WAYS[way](build()) as address:
        before = ended
        with connect(address.port) as connection:
            connection.sendall(UNREAD["a stream without an end"])
            await until(lambda: ended == before + 1)
