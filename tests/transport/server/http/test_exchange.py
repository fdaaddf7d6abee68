"""How exchanges end: when a client does not read, and what is left of a call afterwards."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Client, Context, Limits, Server
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.supervisor import TICK_SECONDS
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.transport.server.http.exchange import Exchange
from tests.support.polling import turns, until
from tests.support.serving import running, serving
from tests.support.speakers import Bare, speaker

pytestmark = pytest.mark.usefixtures("way")

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood","arguments":{},"stream":{}}}'


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    ended = asyncio.Event()
    server = Server("stuck", limits=Limits(max_calls=1, body_timeout=0.3))

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
            async with asyncio.timeout(60):
                await ended.wait()
                for _ in range(1000):
                    if (await Bare(address.port).call("hello")).status == 200:
                        break  # its place is free again
        finally:
            connection.close()


async def test_only_a_long_call_is_watched_for_a_disconnect() -> None:
    server = Server("watched")
    watching: list[bool] = []

    @server.tool
    async def tick() -> str:
        (exchange,) = address.app.endpoint.supervisor.watched
        for seconds in (TICK_SECONDS / 2, TICK_SECONDS * 2):
            exchange.tick(exchange.started + seconds)
            watching.append(bool(exchange.tasks))
        return "done"

    async with running(server) as address:
        client = await speaker("modern", address.port)
        assert (await client.call("tick")).status == 200
    assert watching == [False, True]


@pytest.mark.parametrize("dialect", ["modern", "session", "bare"])
async def test_a_finished_call_is_freed_without_the_garbage_collector(dialect: str) -> None:
    server = Server("freed")

    @server.tool
    async def hello() -> str:
        return "hello"

    async with serving(server) as address:
        client = await speaker(dialect, address.port)
        await client.call("hello")
        gc.collect()
        kept = _alive(Exchange, Call)  # by other tests, in the tracebacks of errors that are parameters
        gc.disable()
        try:
            for _ in range(5):
                assert (await client.call("hello")).status == 200
            await until(lambda: len(_alive(Exchange, Call)) <= len(kept))
        finally:
            gc.enable()


async def test_a_finished_task_is_freed_without_the_garbage_collector() -> None:
    server = Server("freed")

    @server.tool(task="required")
    async def hello(ctx: Context) -> str:
        await ctx.step(turns)
        return "hello"

    async with serving(server) as address, Client(address.url) as client:
        await client.call("hello")
        gc.collect()
        kept = _alive(Exchange, Call, ClaimedTask)
        gc.disable()
        try:
            for _ in range(5):
                assert (await client.call("hello")).text == "hello"
            await until(lambda: len(_alive(Exchange, Call, ClaimedTask)) <= len(kept))
        finally:
            gc.enable()


def _alive(*types: type[Any]) -> list[Any]:
    return [thing for thing in gc.get_objects() if type(thing) in types]
