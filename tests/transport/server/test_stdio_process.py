"""A server process on its standard streams."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.process import SERVERS, environment
from tests.support.speakers import CLIENT, KEY, LEGACY, MODERN
from tests.support.stdio import stdio_server

INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {"roots": {}}, "clientInfo": CLIENT}
EVERYTHING = [str(SERVERS / "everything.py"), "--stdio"]
IMPATIENT = [
    "-c",
    f"""
import runpy, sys
from antiphon.transport.server import stdio
stdio.FLUSH_SECONDS = 0.5
sys.argv = {EVERYTHING!r}
runpy.run_path(sys.argv[0], run_name="__main__")
""",
]
"""The same server, which waits less for a client that does not read."""
META = {KEY + "protocolVersion": MODERN, KEY + "clientInfo": CLIENT, KEY + "clientCapabilities": {}}


async def test_a_session_from_its_beginning_to_its_end() -> None:
    async with stdio_server() as server:
        opened = (await server.ask("initialize", INITIALIZE))["result"]
        assert (opened["protocolVersion"], opened["serverInfo"]["name"]) == (LEGACY, "everything")
        await server.send({"method": "notifications/initialized"})
        assert (await server.ask("ping"))["result"] == {}
        assert len((await server.ask("tools/list"))["result"]["tools"]) == 4
        assert await server.text("add", a=1, b=2) == "3"
        assert await server.text("whoami") == f"{CLIENT['name']} ['roots']"
        server.hang_up()
        status, errors = await server.ended()
        assert status == 0
        assert "Traceback" not in errors


async def test_all_dialects_on_one_connection() -> None:
    async with stdio_server() as server:
        assert (await server.ask("ping"))["result"] == {"resultType": "complete"}
        discovered = (await server.ask("server/discover", {"_meta": META}))["result"]
        assert MODERN in discovered["supportedVersions"]
        assert (await server.ask("ping", {"_meta": META}))["error"]["code"] == -32601
        await server.ask("initialize", INITIALIZE)
        assert (await server.ask("ping"))["result"] == {}
        unknown = {"_meta": {**META, KEY + "protocolVersion": "v999"}}
        assert (await server.ask("tools/list", unknown))["error"]["code"] == -32022


async def test_bad_lines_are_answered_and_the_next_one_is_served() -> None:
    async with stdio_server() as server:
        for line, code, id in [
            (b"rubbish", -32700, None),
            (b"[]", -32600, None),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
            (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[]}', -32602, 5),
            (b'{"jsonrpc":"2.0","id":6,"method":"no/such"}', -32601, 6),
            (b"\xff\xfe", -32700, None),
        ]:
            await server.write(line + b"\n")
            frame = await server.read()
            assert frame is not None
            assert (frame["error"]["code"], frame.get("id")) == (code, id)
        await server.write(b"\n\r\n  \n")
        assert await server.text("add", a=1) == "2"


async def test_a_line_that_is_too_long_is_refused_and_skipped() -> None:
    async with stdio_server() as server:
        await server.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"' + b"x" * 3_000_000 + b'"}\n')
        frame = await server.read()
        assert frame is not None
        assert frame["error"]["code"] == -32600
        assert "1000000" in frame["error"]["message"]
        assert await server.text("add", a=1) == "2"


async def test_a_line_may_arrive_in_parts() -> None:
    async with stdio_server() as server:
        line = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        for byte in line * 3:
            await server.write(bytes([byte]))
        for _ in range(3):
            frame = await server.read()
            assert frame is not None
            assert frame["id"] == 1


async def test_print_goes_to_standard_error() -> None:
    async with stdio_server() as server:
        assert await server.text("shout", text="hello") == "HELLO"
        server.hang_up()
        _, errors = await server.ended()
        assert "shouting hello" in errors


async def test_progress_and_log_messages_are_lines_too() -> None:
    async with stdio_server() as server:
        await server.ask("initialize", INITIALIZE)
        params = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}}
        await server.send({"id": 2, "method": "tools/call", "params": params})
        frames = [await server.read() for _ in range(3)]
        assert [frame and frame.get("method") for frame in frames] == ["notifications/progress"] * 2 + [None]
        await server.send({"id": 3, "method": "tools/call", "params": {"name": "talk"}})
        frames = [await server.read() for _ in range(3)]
        assert [frame and frame.get("method") for frame in frames] == ["notifications/message"] * 2 + [None]


async def test_a_session_gets_changes() -> None:
    async with stdio_server() as server:
        await server.ask("initialize", INITIALIZE)
        await server.ask("resources/subscribe", {"uri": "note://first"})
        await server.send({"id": 2, "method": "tools/call", "params": {"name": "grow"}})
        methods = set()
        for _ in range(3):
            frame = await server.read()
            assert frame is not None
            methods.add(frame.get("method"))
        assert methods == {None, "notifications/tools/list_changed", "notifications/resources/updated"}


async def test_a_subscription_of_2026() -> None:
    async with stdio_server() as server:
        params = {"notifications": {"toolsListChanged": True}, "_meta": META}
        await server.send({"id": "sub", "method": "subscriptions/listen", "params": params})
        acknowledged = await server.read()
        assert acknowledged is not None
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        await server.send({"id": 2, "method": "tools/call", "params": {"name": "grow", "_meta": META}})
        frames = [await server.read(), await server.read()]
        changed = next(frame for frame in frames if frame and "method" in frame)
        assert changed["params"]["_meta"] == {KEY + "subscriptionId": "sub"}
        await server.send({"method": "notifications/cancelled", "params": {"requestId": "sub"}})
        assert (await server.ask("tools/call", {"name": "grow", "_meta": META}, id=3))["id"] == 3
        server.hang_up()
        assert await server.read() is None


def holding(id: int, file: Path) -> dict[str, Any]:
    """Return a call that ends once there is a file."""
    return {"id": id, "method": "tools/call", "params": {"name": "hold", "arguments": {"file": str(file)}}}


async def test_calls_run_at_once_and_can_be_cancelled(tmp_path: Path) -> None:
    async with stdio_server() as server:
        await server.send(holding(7, tmp_path / "never"))
        assert await server.text("add", a=1) == "2"
        await server.send({"method": "notifications/cancelled", "params": {"requestId": 7}})
        server.hang_up()
        assert await server.read() is None, "a cancelled request has no response"
        assert (await server.ended())[0] == 0


async def test_running_calls_finish_after_the_end_of_input(tmp_path: Path) -> None:
    async with stdio_server() as server:
        await server.send(holding(7, tmp_path / "ends"))
        server.hang_up()
        (tmp_path / "ends").touch()
        frame = await server.read()
        assert frame is not None
        assert (frame["id"], frame["result"]["isError"]) == (7, False)
        assert (await server.ended())[0] == 0


async def test_running_calls_finish_after_a_signal(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        async with stdio_server() as server:
            assert await server.text("add", a=1) == "2"
            ends = tmp_path / str(number)
            await server.send(holding(7, ends))
            assert await server.text("add", a=1) == "2"
            server.process.send_signal(number)
            ends.touch()
            frame = await server.read()
            assert frame is not None
            assert (frame["id"], frame["result"]["isError"]) == (7, False)
            assert (await server.ended())[0] == 0


@contextmanager
def unread(calls: int, size: int, command: Sequence[str] = EVERYTHING) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, and call a tool so often without reading any of the answers, which have this size."""
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        params = {"name": "echo", "arguments": {"text": "x" * size}}
        for number in range(calls):
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def test_a_client_that_does_not_read_and_disconnects() -> None:
    with unread(50, 100_000) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.close()
        assert process.wait(60) == 0


def test_the_wait_for_a_client_that_does_not_read_has_a_deadline() -> None:
    with unread(15, 900_000, IMPATIENT) as process:  # less than the output that a server keeps
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


async def test_a_server_without_input_ends_at_once() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVERS / "everything.py"),
        "--stdio",
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, output, errors) == (0, b"", b"")
