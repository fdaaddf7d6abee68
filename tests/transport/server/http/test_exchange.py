"""A client that is connected but does not read is disconnected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

from antiphon import Limits, Server
from tests.support.serving import serving
from tests.support.speakers import Bare

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood","arguments":{},"stream":{}}}'


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    ended = asyncio.Event()
    server = Server("stuck", limits=Limits(max_calls=1, keep_alive_interval=0.3))

    @server.tool
    async def flood() -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 100_000
        finally:
            ended.set()

    @server.tool
    async def hello() -> str:
        return "hello"

    async with serving(server) as address:
        connection = socket.create_connection(("127.0.0.1", address.port))
        try:
            head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            accept = b"Accept: application/json, text/event-stream\r\n"
            connection.sendall(head + accept + b"Content-Length: %d\r\n\r\n" % len(CALL) + CALL)
            async with asyncio.timeout(10):
                await ended.wait()
                for _ in range(1000):
                    if (await Bare(address.port).call("hello")).status == 200:
                        break  # its place is free again
        finally:
            connection.close()
