"""The bounds of connections and heads in real processes: `antiphon run`, its workers, and `Server.run()`."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.raw import MARKER, PING, post, send_raw
from tests.hostile.test_http_unread import JSON_ONLY, call, connect
from tests.support import http
from tests.support.polling import until
from tests.support.process import ServerProcess, started

SERVED = [200, 404]
MIB = 1024 * 1024
WAYS: dict[str, dict[str, Any]] = {
    "antiphon run": {"command": True},
    "antiphon run --workers 2": {"command": True, "options": ["--workers", "2"]},
    "Server.run()": {},
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and TCP_INFO")
needs_prlimit = pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit")


def limits(**values: Any) -> dict[str, str]:
    return {"LIMITS": json.dumps(values), "ANTIPHON_SECRETS": "0123456789abcdef" * 4}


@pytest.fixture(params=list(WAYS))
def bounded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    environment = limits(head_timeout=2, body_timeout=2, max_memory_bytes=1024 * MIB)
    # glibc keeps freed blocks of this size otherwise, and resident memory would not show what is kept.
    environment["MALLOC_MMAP_THRESHOLD_"] = str(128 * 1024)
    with started("bounded.py", tmp_path, env=environment, **WAYS[request.param]) as process:
        yield process


async def test_heads_are_bounded_however_the_server_is_started(bounded: ServerProcess) -> None:
    port = bounded.port
    endless = [b"GET / HTTP/1.1\r\nX: ", *([b"x" * MIB] * 50)]
    assert (await send_raw(port, *endless)).statuses == [431]

    async def is_late() -> bool:  # unless this process was so slow that nothing of the head came
        return (await send_raw(port, post()[:40])).statuses == [408]

    await until(is_late)
    assert (await send_raw(port)).statuses == []
    assert (await send_raw(port, post(PING, *(f"X-{n}: 1" for n in range(100))), MARKER)).statuses == [
        431,
        404,
    ]
    assert (await send_raw(port, post(), MARKER)).statuses == SERVED
    assert "Traceback" not in bounded.log, bounded.log


async def test_readers_that_do_not_read_do_not_keep_their_answers(bounded: ServerProcess) -> None:
    assert (await send_raw(bounded.port, call("large", JSON_ONLY, size=8 * MIB), MARKER)).statuses == SERVED
    before = _tree_memory(bounded)
    with ExitStack() as stack:
        readers = [stack.enter_context(connect(bounded.port)) for _ in range(100)]
        for reader in readers:
            reader.sendall(call("large", JSON_ONLY, size=4 * MIB))
        await until(lambda: all(_is_closed(reader) for reader in readers))
    assert (await send_raw(bounded.port, post(), MARKER)).statuses == SERVED
    await until(lambda: _tree_memory(bounded) < before + 100 * MIB)
    assert "Traceback" not in bounded.log, bounded.log


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed a connection, without reading from it."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO) & 0xFF != _ESTABLISHED


_ESTABLISHED = 1
"""The state of a TCP connection that is open, in the first byte of `TCP_INFO`."""


def _tree_memory(server: ServerProcess) -> int:
    """Return the resident memory of a process and its children."""
    pids = [server.process.pid]
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += [int(child) for child in (task / "children").read_text().split()]
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in pids)


@needs_prlimit
async def test_the_limit_of_descriptors_is_raised_at_the_start(tmp_path: Path) -> None:
    with started("bounded.py", tmp_path, env=limits(), command=True, descriptors=(64, 4096)) as server:
        async with AsyncExitStack() as stack:
            held = [await stack.enter_async_context(http.connect(server.port)) for _ in range(200)]
            for connection in held:
                await connection.write(post())
                assert (await connection.receive()).status == 200
        assert "At most 3840 connections are accepted, not 4096" in server.log


@needs_prlimit
async def test_more_connections_than_descriptors_neither_stop_the_server_nor_fill_its_log(
    tmp_path: Path,
) -> None:
    environment = limits(head_timeout=2)
    with started("bounded.py", tmp_path, env=environment, command=True, descriptors=(64, 64)) as server:
        async with AsyncExitStack() as stack:
            caller = await stack.enter_async_context(http.connect(server.port))
            await caller.write(post())
            assert (await caller.receive()).status == 200
            for _ in range(300):
                other = await stack.enter_async_context(http.connect(server.port))
                other.writer.write(b"POST /mcp HTTP/1.1\r\nX-")
            await caller.write(post())
            assert (await caller.receive()).status == 200

            async def is_served() -> bool:  # once the slow heads are closed
                return (await send_raw(server.port, post(), MARKER)).statuses == SERVED

            await until(is_served)
        assert server.log.count("Refusing connections") == 1
        assert server.log.count("\n") < 10
        assert "Traceback" not in server.log


async def test_a_thousand_slow_heads_do_not_lock_others_out(tmp_path: Path) -> None:
    """A caller at another address is served at once, and every slow head is closed."""
    environment = limits(head_timeout=3, max_connections=1500, max_connections_per_address=1000)
    with started("bounded.py", tmp_path, env=environment, command=True) as server, ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(1100)
        ]
        for connection in slow:
            try:
                connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
            except ConnectionError:
                pass
        other = stack.enter_context(
            socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.2", 0))
        )
        other.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(other, post())
        answer = await asyncio.wait_for(loop.sock_recv(other, 65536), 30)
        assert answer.startswith(b"HTTP/1.1 200 ")
        await until(lambda: all(_is_closed(connection) for connection in slow))
