"""Hundreds of slow clients, while others are served."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

from tests.robustness.load import idle, reached
from tests.support import http
from tests.support.http import Connection
from tests.support.process import ServerProcess
from tests.support.speakers import Modern

CLIENTS = 500
PIECES = 12


async def test_five_hundred_slow_clients_do_not_delay_others(loaded: ServerProcess) -> None:
    asker = Modern(loaded.port)
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(http.connect(loaded.port)) for _ in range(CLIENTS)]
        pieces: list[list[bytes]] = []
        for number in range(CLIENTS):
            headers, frame = asker.build("tools/call", asker.tool_call("add", a=number, b=1), id=number)
            body = json.dumps(frame).encode()
            request = http.head("POST", "/mcp", headers, len(body)) + body
            size = len(request) // PIECES + 1
            pieces.append([request[start : start + size] for start in range(0, len(request), size)])

        served = 0
        for step in range(PIECES):
            for connection, parts in zip(slow, pieces, strict=True):
                connection.writer.write(parts[step])
            # All of them are now somewhere in a request; everybody else is served at once.
            responses = await asyncio.gather(*(asker.call("add", a=step, b=n) for n in range(20)))
            assert [response.text for response in responses] == [str(step + n) for n in range(20)]
            served += len(responses)
        assert served == 20 * PIECES

        answers = await asyncio.gather(*(dribbled(connection) for connection in slow))
    for number, answer in enumerate(answers):
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (number, str(number + 1))
    assert "Traceback" not in loaded.log


async def dribbled(connection: Connection) -> dict[str, object]:
    """Return a response that is read byte by byte."""
    raw = bytearray()
    async with asyncio.timeout(60):
        while not raw.endswith(b"\r\n\r\n"):
            raw += await connection.reader.readexactly(1)
        length = int(raw.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = bytearray()
        while len(body) < length:
            body += await connection.reader.readexactly(1)
    return dict(json.loads(body))


async def test_five_hundred_clients_that_never_finish_are_dropped(loaded: ServerProcess) -> None:
    asker = Modern(loaded.port)
    async with AsyncExitStack() as stack:
        for number in range(CLIENTS):
            connection = await stack.enter_async_context(http.connect(loaded.port))
            headers, _ = asker.build("tools/call", asker.tool_call("add", a=1, b=1))
            # A third stop in the head, a third before the body, a third within it.
            start = http.head("POST", "/mcp", headers, 100) + b'{"jsonrpc":'
            cut = (20, len(start) - 11, len(start))[number % 3]
            connection.writer.write(start[:cut])
        responses = await asyncio.gather(*(asker.call("add", a=1, b=n) for n in range(100)))
        assert [response.text for response in responses] == [str(1 + n) for n in range(100)]
    await reached(asker, idle)
