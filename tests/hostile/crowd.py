"""A hostile crowd in a process of its own: slow heads, slow bodies, listeners, unread answers, a flood.

`python -m tests.hostile.crowd PORT` opens all of them, prints a line with their numbers, keeps the flood
going, and ends when its standard input does. `crowd` runs it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support import http
from tests.support.http import Connection
from tests.support.polling import turns
from tests.support.process import ROOT, environment
from tests.support.speakers import Modern

__all__ = ["ADA", "crowd"]

ADA = {"authorization": "Bearer token-of-ada"}
SLOW_HEADS, SLOW_BODIES, LISTENERS, UNREAD, FLOODING = 500, 500, 1000, 200, 8
HEAD_BYTES, BODY_BYTES, ANSWER_BYTES = 8_000, 40_000, 4_000_000
AT_ONCE = 64
"""How many connections are opened at the same time."""
DESCRIPTORS = 4096


@contextmanager
def crowd(port: int) -> Iterator[dict[str, int]]:
    """Send the crowd to a server, and yield how many of its clients got in; send it away afterwards.

    Then the dictionary also says how many messages the flood had.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.crowd", str(port)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    try:
        counts: dict[str, int] = json.loads(process.stdout.readline())
        yield counts
    finally:
        rest, _ = process.communicate()
    assert process.returncode == 0
    counts |= json.loads(rest)


async def main(port: int) -> None:
    """Open all connections, say so, and flood the server until standard input ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    gate = asyncio.Semaphore(AT_ONCE)
    kinds = {
        "slow heads": (SLOW_HEADS, _slow_head),
        "slow bodies": (SLOW_BODIES, _slow_body),
        "listeners": (LISTENERS, _listener),
        "unread": (UNREAD, _unread),
    }
    counts: Counter[str] = Counter()
    opened: list[Connection] = []

    async def come(kind: str, number: int) -> None:
        async with gate:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                connection = Connection(reader, writer)
                opened.append(connection)
                async with asyncio.timeout(60):
                    came = await kinds[kind][1](connection, number)
                counts[kind] += came
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                counts[f"lost {kind}"] += 1

    await asyncio.gather(*(come(kind, number) for kind in kinds for number in range(kinds[kind][0])))
    flood = [asyncio.create_task(_flood(port, number, counts)) for number in range(FLOODING)]
    print(json.dumps(counts), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    for connection in opened:
        connection.vanish()
    print(json.dumps(counts), flush=True)


async def _slow_head(connection: Connection, number: int) -> bool:
    await connection.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: " + b"x" * HEAD_BYTES)
    return True


async def _slow_body(connection: Connection, number: int) -> bool:
    headers = _build("bodies", "tools/call", {"name": "add", "arguments": {}})[0]
    await connection.write(
        http.head("POST", "/mcp", headers, 2 * BODY_BYTES) + b"[" + b"1," * (BODY_BYTES // 2)
    )
    return True


async def _listener(connection: Connection, number: int) -> bool:
    params = {"notifications": {"resourceSubscriptions": [f"u://{number}"]}}
    headers, frame = _build("listeners", "subscriptions/listen", params)
    await connection.send("POST", "/mcp", headers, json.dumps(frame).encode())
    return (await connection.receive_head()).status == 200


async def _unread(connection: Connection, number: int) -> bool:
    headers, frame = _build("unread", "tools/call", {"name": "say", "arguments": {"size": ANSWER_BYTES}})
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await connection.send("POST", "/mcp", headers, json.dumps(frame).encode())
    return True


async def _flood(port: int, number: int, counts: Counter[str]) -> None:
    headers, frame = _build("flood", "tools/call", {"name": "add", "arguments": {"a": "no number"}})
    bodies = [b"{", b"[]", b"null", b"[" * 1000, b"\xff" * 200, json.dumps(frame).encode()]
    while True:
        try:
            async with http.connect(port) as connection:
                for body in bodies * 20:
                    await connection.send("POST", "/mcp", headers if number % 2 else {}, body)
                    await connection.receive()
                    counts["flood"] += 1
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            await turns()


def _build(principal: str, method: str, params: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the headers and the frame of a request of one of the crowd's principals."""
    return Modern(0, headers={"authorization": f"Bearer token-of-{principal}"}).build(method, params)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
