"""Memory stays flat over many calls."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support import http
from tests.support.process import ServerProcess
from tests.support.sizes import size
from tests.support.speakers import Modern, Session

CALLS = size(10_000, long=20_000)
AT_ONCE = 8


async def plain(port: int, count: int) -> None:
    """Make calls on one connection, one after the other."""
    headers, frame = Modern(port).build("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    body = json.dumps(frame).encode()
    request = http.head("POST", "/mcp", headers, len(body)) + body
    async with http.connect(port) as connection:
        for _ in range(count):
            connection.writer.write(request)
            response = await connection.receive()
            assert b'"text":"3"' in response.body


async def eventful(port: int, count: int) -> None:
    """Open sessions with streams and notifications, use each a few times, and abandon them."""
    for _ in range(count // 10):
        session = Session(port)
        await session.open()
        for _ in range(8):
            assert (await session.call("work", {"progressToken": 1})).text == "worked"


@pytest.mark.long
async def test_thousands_of_calls_leave_nothing_behind(loaded: ServerProcess) -> None:
    sizes = []
    for _ in range(5):
        await asyncio.gather(
            *(plain(loaded.port, CALLS // 5 // AT_ONCE) for _ in range(AT_ONCE)), eventful(loaded.port, 200)
        )
        sizes.append(loaded.memory)
    assert sizes[-1] - sizes[1] < 5_000_000, sizes
    assert "Traceback" not in loaded.log
