"""A client on standard streams or in memory: any line gets at most one answer, and the next is served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.transport.server.stream_connection import StreamConnection
from tests.fuzz.asgi import ANSWER_SECONDS, build_server
from tests.fuzz.strategies import damaged, frames, target

LINES = st.lists(
    frames().map(lambda frame: json.dumps(frame).encode())
    | damaged(frames().map(lambda frame: json.dumps(frame).encode()))
    | st.binary(max_size=30),
    max_size=4,
)
PING = b'{"jsonrpc":"2.0","id":"the last one","method":"ping"}'


@target
@given(LINES)
def test_any_lines_are_answered_and_the_next_one_is_served(lines: list[bytes]) -> None:
    answers = asyncio.run(_converse(lines))
    assert len(answers) <= len(lines) + 1
    for answer in answers:
        assert answer["jsonrpc"] == "2.0"
        assert ("result" in answer) != ("error" in answer)
        assert answer.get("error", {}).get("code") != -32603, (lines, answer)


async def _converse(lines: list[bytes]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    served = asyncio.Event()

    async def write(data: bytes) -> None:
        frame = json.loads(data)
        if "method" not in frame:
            answers.append(frame)
        if frame.get("id") == "the last one":
            served.set()

    server = build_server()
    async with server.running():
        connection = StreamConnection(server.engine, write)
        for line in lines:
            connection.receive(line)
        connection.receive(PING)
        async with asyncio.timeout(ANSWER_SECONDS):
            await served.wait()
        await connection.close(within=1)
    return answers
