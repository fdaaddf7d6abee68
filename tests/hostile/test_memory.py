"""Callers cannot make a process keep more memory than its budget, whatever they send.

The server has a budget of 32 MiB. Each flood would take 150 MiB or more without it. The bounds leave room
for the interpreter, for what the allocator keeps and for what is decoded at the moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.polling import until
from tests.support.process import ServerProcess, started
from tests.support.speakers import CLIENT, LEGACY, Modern, Session
from tests.support.stdio import StdioServer, stdio_server

MIB = 1024 * 1024
BUDGET = 32 * MIB
ROOM = 64 * MIB
"""How much a process may need beside its budget, for what it decodes and what the allocator keeps."""
HOLLOW: list[Any] = [[]] * 5000
"""A list that takes 15 KB as text, and twenty times as much once it is decoded."""


@pytest.fixture(params=["run", "asgi"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """`tests/support/servers/guarded.py`, under `antiphon run` or a plain uvicorn, with a store."""
    env = {"ANTIPHON_STORE": f"sqlite:///{tmp_path}/tasks.db", "ANTIPHON_SECRETS": "a secret of the tests!"}
    with started("guarded.py", tmp_path, env=env, command=request.param == "run") as server:
        yield server


@asynccontextmanager
async def bounded(server: ServerProcess) -> AsyncIterator[None]:
    """Check that a flood takes no more than the budget, and that the server goes on."""
    asker = Modern(server.port)
    assert (await asker.call("reserved")).text == "0"
    before = server.memory
    yield
    assert server.peak - before < BUDGET + ROOM, f"{(server.peak - before) / MIB:.0f} MiB more"
    assert int((await asker.call("reserved")).text) <= BUDGET
    assert "Traceback" not in server.log


async def released(server: ServerProcess) -> None:
    """Wait until nothing is reserved."""

    async def is_nothing() -> bool:
        return (await Modern(server.port).call("reserved")).text == "0"

    await until(is_nothing)


def initialize(capabilities: Any) -> dict[str, Any]:
    return {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": CLIENT}


async def test_sessions_with_large_capabilities(guarded: ServerProcess) -> None:
    async with bounded(guarded):
        for _ in range(12):
            refused = await Session(guarded.port).ask("initialize", initialize({"x": [[]] * 400_000}))
            assert refused.status == 413


async def test_many_sessions_with_the_largest_capabilities(guarded: ServerProcess) -> None:
    async with bounded(guarded):
        capabilities = {"experimental": {"x": HOLLOW}}
        first, *last = (Session(guarded.port) for _ in range(101))
        await first.open(capabilities=capabilities)
        for _ in range(300):
            opened = await Session(guarded.port).ask("initialize", initialize(capabilities))
            assert opened.status == 200
        for session in last:  # evict all others
            await session.open(capabilities=capabilities)
        assert (await first.call("reserved")).status == 200, "an evicted session is restored"
        for session in (first, *last):
            assert (await http.request(guarded.port, "DELETE", session.headers)).status == 204
        await released(guarded)


async def test_events_that_are_kept_for_replay(guarded: ServerProcess) -> None:
    async with bounded(guarded):
        sessions = [Session(guarded.port) for _ in range(12)]
        for session in sessions:
            await session.open()
            await session.ask("logging/setLevel", {"level": "info"})
            for _ in range(16):
                assert (await session.call("say", size=900_000)).text == "said"
        for session in sessions:
            await http.request(guarded.port, "DELETE", session.headers)
        await released(guarded)


async def test_bodies_that_do_not_end(guarded: ServerProcess) -> None:
    headers, _ = Modern(guarded.port).build("tools/call", {"name": "wait"})
    statuses = []
    async with bounded(guarded):
        async with AsyncExitStack() as stack:
            connections = []
            for _ in range(100):
                connection = await stack.enter_async_context(http.connect(guarded.port))
                connection.writer.write(http.head("POST", "/mcp", headers, 4 * MIB) + b" " * (4 * MIB - 1))
                connections.append(connection)
            for connection in connections[-50:]:
                try:
                    statuses.append((await connection.receive_head()).status)
                except (ConnectionError, asyncio.IncompleteReadError):
                    statuses.append(503)  # refused, and closed while we were still sending
            assert (await Modern(guarded.port).call("reserved")).status == 200, "a small call is served"
        await released(guarded)
    assert 503 in statuses


async def test_calls_with_arguments_that_need_much_memory(guarded: ServerProcess) -> None:
    modern = Modern(guarded.port)
    headers, frame = modern.build("tools/call", modern.tool_call("wait", stuff=HOLLOW * 12))
    body = json.dumps(frame).encode()
    async with bounded(guarded):
        async with AsyncExitStack() as stack:
            for _ in range(60):
                connection = await stack.enter_async_context(http.connect(guarded.port))
                await connection.send("POST", "/mcp", headers, body)
            assert (await connection.receive_head()).status == 503
            assert (await modern.call("reserved")).status == 200
        await released(guarded)


async def test_listeners_with_long_lists(guarded: ServerProcess) -> None:
    modern = Modern(guarded.port)
    async with bounded(guarded):
        async with AsyncExitStack() as stack:
            for number in range(100):
                uris = [f"note://{number}/{other}/" + "x" * 1900 for other in range(1000)]
                interests = {"notifications": {"resourceSubscriptions": uris}}
                connection = await stack.enter_async_context(modern.asking("subscriptions/listen", interests))
            assert (await connection.receive_head()).status == 503
        await released(guarded)


async def test_responses_that_nobody_asked_for(guarded: ServerProcess, tmp_path: Path) -> None:
    session = Session(guarded.port)
    await session.open()
    async with bounded_store(tmp_path):
        for number in range(200):
            frame = {"jsonrpc": "2.0", "id": f"ask-{number:016x}", "result": {"text": "x" * MIB}}
            body = json.dumps(frame).encode()
            assert (await http.request(guarded.port, "POST", session.headers, body)).status == 400
            await session.tell("notifications/cancelled", {"requestId": f"{number}" + "x" * 100_000})
    assert guarded.peak < 2 * guarded.memory + BUDGET + ROOM


@asynccontextmanager
async def bounded_store(folder: Path) -> AsyncIterator[None]:
    """Check that a flood does not reach the store."""
    yield
    size = sum(file.stat().st_size for file in folder.glob("tasks.db*"))
    assert size < 5 * MIB


# Standard streams


def state_of(server: StdioServer) -> str:
    """Return what the process does: `S` if it waits for something."""
    return Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(") ")[2][0]


def memory_of(server: StdioServer) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.parametrize(
    "line", [b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', b"{}\n"], ids=["requests", "invalid"]
)
async def test_a_client_that_sends_and_does_not_read(line: bytes) -> None:
    async with stdio_server("guarded.py", limit=65536) as server:
        assert "result" in await server.ask("ping", id=0)
        before = memory_of(server)
        assert server.process.stdin is not None
        assert server.process.stdout is not None
        server.process.stdin.write(line * (4 * MIB // len(line)))
        looks: list[tuple[str, int]] = []

        def waits() -> bool:
            """Whether the server has been asleep at the last looks, and has read nothing between them."""
            assert server.process.stdin is not None
            looks.append((state_of(server), server.process.stdin.transport.get_write_buffer_size()))
            return len(looks) >= 20 and set(looks[-20:]) == {("S", looks[-1][1])}

        await until(waits)
        assert looks[-1][1] > 2 * MIB, "the server stops reading"
        assert memory_of(server) - before < BUDGET + ROOM
        server.process.kill()
        while await server.process.stdout.read(MIB):
            pass


async def test_answers_that_nobody_asked_for_on_standard_streams() -> None:
    async with stdio_server("guarded.py") as server:
        assert "result" in await server.ask("ping", id=0)
        before = memory_of(server)
        for number in range(200):
            await server.send({"id": f"ask-{number}", "result": {"text": "x" * MIB}})
        assert "result" in await server.ask("ping", id=1)
        assert memory_of(server) - before < BUDGET + ROOM


async def test_lines_without_an_end() -> None:
    async with stdio_server("guarded.py") as server:
        assert "result" in await server.ask("ping", id=0)
        before = memory_of(server)
        for _ in range(200):
            await server.write(b"x" * MIB)
        await server.write(b"\n")
        assert "too large" in str(await server.read())
        assert memory_of(server) - before < BUDGET + ROOM
        assert "result" in await server.ask("ping", id=1)


async def test_subscriptions_on_standard_streams() -> None:
    async with stdio_server("guarded.py") as server:
        await server.ask("initialize", initialize({}), id=0)
        refused = await server.ask("resources/subscribe", {"uri": "note://" + "x" * 3000})
        assert "3007 characters" in refused["error"]["message"]
        assert "result" in await server.ask("resources/subscribe", {"uri": "note://one"})
        large = await server.ask("initialize", initialize({"x": HOLLOW * 10}))
        assert "at most 16384" in large["error"]["message"]
