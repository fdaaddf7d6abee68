"""Requests that go from the HTTP protocol to the endpoint, without ASGI in between."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Context, Limits, Server
from antiphon.model.identity import STRANGER
from antiphon.transport.server.http.batched_start import BatchedStart
from antiphon.transport.server.http.plain_exchange import PlainExchange
from antiphon.transport.server.http.serve import KEEP_ALIVE_SECONDS
from tests.support import http
from tests.support.http import connect
from tests.support.loop_time import LoopTime
from tests.support.polling import forever, turns, until
from tests.support.serving import Address, running
from tests.support.speakers import JSON, Modern, Session

BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def build(limits: Limits | None = None) -> Server:
    server = Server("tests", limits=limits or Limits())

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def talks(ctx: Context) -> str:
        await ctx.info("hello")
        return "done"

    return server


@pytest_asyncio.fixture
async def where() -> AsyncIterator[Address]:
    async with running(build()) as address:
        yield address


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The answers that were written at once."""
    answers: list[bytes] = []
    write = PlainExchange.write

    def note(self: PlainExchange, body: bytes) -> bool:
        is_written = write(self, body)
        if is_written:
            answers.append(body)
        return is_written

    monkeypatch.setattr(PlainExchange, "write", note)
    return answers


def connections(where: Address) -> Any:
    return where.runner.config.connections  # type: ignore[attr-defined]


async def test_a_plain_answer_is_written_at_once(where: Address, written: list[bytes]) -> None:
    assert (await Modern(where.port).call("add", a=1, b=2)).text == "3"
    assert len(written) == 1


async def test_a_call_that_talks_gets_a_stream(where: Address, written: list[bytes]) -> None:
    asker = Modern(where.port)
    params = asker.tool_call("talks", {"io.modelcontextprotocol/logLevel": "info"})
    response = await asker.ask("tools/call", params)
    assert response.headers["content-type"] == "text/event-stream"
    assert [event["method"] for event in response.frames[:-1]] == ["notifications/message"]
    assert written == []


async def test_many_requests_on_one_connection(where: Address, written: list[bytes]) -> None:
    async with connect(where.port) as connection:
        for _ in range(20):
            await connection.write(http.head("POST", "/mcp", JSON, len(BODY)) + BODY)
            assert (await connection.receive()).status == 200
    assert len(written) == 20


async def test_requests_that_are_sent_ahead_are_answered_in_order(where: Address) -> None:
    request = http.head("POST", "/mcp", JSON, len(BODY))
    async with connect(where.port) as connection:
        await connection.write(b"".join(request + BODY.replace(b"1,", b"%d," % id) for id in range(1, 9)))
        answers = [await connection.receive() for _ in range(8)]
    assert [answer.frame["id"] for answer in answers] == [*range(1, 9)]


async def test_a_client_that_disconnects_within_its_body_leaves_nothing_behind(where: Address) -> None:
    async with connect(where.port) as connection:
        await connection.write(http.head("POST", "/mcp", JSON, len(BODY)) + BODY[:9])
        await until(lambda: len(connections(where)) == 1)
        connection.vanish()
    await until(lambda: not len(connections(where)))
    assert not connections(where).deadlines


async def test_a_body_in_parts_is_read(where: Address, written: list[bytes]) -> None:
    async with connect(where.port) as connection:
        await connection.write(http.head("POST", "/mcp", JSON, len(BODY)))
        for byte in BODY:
            await connection.write(bytes((byte,)))
        assert (await connection.receive()).status == 200
    assert len(written) == 1
    assert not connections(where).deadlines


async def test_a_body_that_stays_away_is_waited_for_once(written: list[bytes]) -> None:
    async with running(build(Limits(body_timeout=0.3))) as where, connect(where.port) as connection:
        await connection.write(http.head("POST", "/mcp", JSON, len(BODY)) + BODY[:5])
        response = await connection.receive()
    assert (response.status, response.error["message"]) == (408, "The request did not arrive in time.")
    assert written == []


async def test_an_idle_connection_is_closed() -> None:
    async with running(build()) as where, connect(where.port) as connection:
        await connection.write(http.head("POST", "/mcp", JSON, len(BODY)) + BODY)
        await connection.receive()
        rest = asyncio.create_task(connection.reader.read())
        await LoopTime.here().advance_until(rest.done, 2 * KEEP_ALIVE_SECONDS)
        assert await rest == b""
        await until(lambda: not len(connections(where)))


async def test_a_shutdown_closes_the_connection_after_the_answer() -> None:
    server, begun, release = build(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def holds() -> str:
        begun.set()
        await release.wait()
        return "held"

    async with running(server) as where:
        asker = Modern(where.port)
        call = asyncio.create_task(asker.call("holds"))
        await begun.wait()
        where.runner.should_exit = True
        await until(where.is_refusing)
        release.set()
        response = await call
    assert response.text == "held"
    assert response.headers["connection"] == "close"


async def test_a_shutdown_answers_a_request_that_is_on_its_way_over_an_idle_connection() -> None:
    async with running(build()) as where:
        with socket.create_connection(("127.0.0.1", where.port)) as client:
            request = http.head("POST", "/mcp", JSON, len(BODY)) + BODY
            client.setblocking(False)
            loop, time = asyncio.get_running_loop(), LoopTime.here()
            await loop.sock_sendall(client, request)
            received = await loop.sock_recv(client, 65536)
            assert received.endswith(b"}")
            with time.stopped():  # it waits for a last request for a moment only
                where.runner.should_exit = True
                time.advance(1)  # it looks once in a while whether to exit
                await time.let(where.is_refusing)
                await loop.sock_sendall(client, request)
                while part := await loop.sock_recv(client, 65536):
                    received += part
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.count(b"connection: close") == 1


async def test_each_request_has_a_task_and_context_variables_of_its_own() -> None:
    server, seen = build(), []
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    @server.tool
    async def look() -> str:
        task = asyncio.current_task()
        assert task is not None
        variable.set(variable.get() + 1)
        seen.append((id(task), variable.get()))
        await turns()
        assert asyncio.current_task() is task
        return "seen"

    async with running(server) as where:
        asker = Modern(where.port)
        assert {(await asker.call("look")).text for _ in range(3)} == {"seen"}
    assert [value for _, value in seen] == [1, 1, 1]


async def test_the_access_log_has_plain_requests(caplog: pytest.LogCaptureFixture) -> None:
    async with running(build(), access_log=True) as where:
        with caplog.at_level(logging.INFO, "uvicorn.access"):
            async with connect(where.port) as connection:
                await connection.write(http.head("POST", "/mcp", JSON, len(BODY)) + BODY)
                await connection.receive()
    assert '"POST /mcp HTTP/1.1" 200' in caplog.text


@pytest.mark.parametrize("stop", ["cancel", "delete"])
async def test_a_call_that_is_stopped_before_it_begins_does_not_run_on(
    stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, events = build(), list[str]()

    @server.tool
    async def endless() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            events.append("stopped")
            raise
        return "done"

    add = BatchedStart.add

    def stop_and_add(self: BatchedStart, work: Any, loop: Any) -> None:
        """Stop the call in the turn of the loop in which it was read, as another request can."""
        found = address.app.endpoint.sessions.find(session.session_id, STRANGER)
        if 7 in found.calls:
            if stop == "cancel":
                found.calls.cancel(7)
            else:
                address.app.endpoint.sessions.end_by_name(found.name, found.expires)
            events.append("to be stopped")
        add(self, work, loop)

    async with running(server) as address:
        session = Session(address.port)
        await session.open()
        assert (await session.call("add", a=1, b=2)).text == "3"  # the guard knows the headers now
        monkeypatch.setattr(BatchedStart, "add", stop_and_add)
        async with connect(address.port) as connection:
            call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "endless"}}
            await connection.send("POST", "/mcp", session.headers, json.dumps(call).encode())
            await until(lambda: events == ["to be stopped", "stopped"])
            await until(lambda: address.under_way == 0)
            assert address.app.endpoint.running_calls == 0
