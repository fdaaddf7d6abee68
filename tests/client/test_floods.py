"""Servers that send without end: other work of the event loop goes on, counted in turns and never in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from antiphon.transport.client.http_response import EventCursor, frames
from antiphon.transport.client.line_channel import LineConnection
from antiphon.wire.jsonrpc import Frame
from tests.support.polling import turns

LINES = 8_000
MOST_AT_ONCE = 20
"""How many lines may be read, on average, before other work has its turn."""
MESSAGES = [
    b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n',
    b'{"jsonrpc":"2.0","id":"nobody","result":{}}\n',
    b'{"jsonrpc":"2.0","id":"q","method":"ping"}\n',
]


class Work:
    """Other work of the event loop, which counts its turns."""

    turns = 0


@asynccontextmanager
async def other_work() -> AsyncIterator[Work]:
    """Let other work go on, for as long as the block takes."""
    work = Work()

    async def go_on() -> None:
        while True:
            await turns()
            work.turns += 1

    going_on = asyncio.create_task(go_on())
    try:
        yield work
    finally:
        going_on.cancel()
        await asyncio.wait({going_on})


class Flood(NamedTuple):
    """A response over HTTP whose bytes are all there."""

    pieces: Iterator[bytes]
    status: int = 200

    def header(self, name: str) -> str | None:
        return None

    async def read(self, most: int = 0) -> bytes:
        return next(self.pieces, b"")

    async def close(self) -> None:
        pass


def flood(line: bytes) -> Flood:
    return Flood(iter([line * (LINES // 8)] * 8))


@pytest.mark.parametrize("line", [*MESSAGES, b"\n", b" " * 2000 + b"\n"])
async def test_a_flood_of_lines_leaves_other_work_its_turns(line: bytes) -> None:
    async def write(written: bytes) -> None:
        pass

    received, all_received = 0, asyncio.Event()

    async def receive(frame: Frame) -> None:
        nonlocal received
        received += 1
        if received == LINES:
            all_received.set()

    async with other_work() as work:
        lines = LineConnection("a server", flood(line).read, write, receive, max_message=2**20)
        await asyncio.wait({lines.listening})
        assert work.turns * MOST_AT_ONCE >= LINES
        if b'"method"' in line:
            await all_received.wait()
        await lines.close()


async def test_messages_that_were_read_while_the_receiver_waited_leave_other_work_its_turns() -> None:
    async def write(written: bytes) -> None:
        pass

    begin, received, all_received = asyncio.Event(), 0, asyncio.Event()

    async def receive(frame: Frame) -> None:
        nonlocal received
        await begin.wait()
        received += 1
        if received == LINES:
            all_received.set()

    lines = LineConnection(
        "a server", flood(MESSAGES[0]).read, write, receive, max_message=2**20, max_unread=LINES
    )
    await asyncio.wait({lines.listening})
    async with other_work() as work:
        begin.set()
        await all_received.wait()
        assert work.turns * MOST_AT_ONCE >= LINES
    await lines.close()


@pytest.mark.parametrize("line", [*(b"data: " + each + b"\n" for each in MESSAGES), b"id: 7\n\n"])
async def test_a_flood_of_events_leaves_other_work_its_turns(line: bytes) -> None:
    async with other_work() as work:
        async with contextlib.aclosing(frames(flood(line), 2**20, EventCursor(), "a server")) as found:
            number = len([frame async for frame in found])
        assert work.turns * MOST_AT_ONCE >= LINES
    assert number in (0, LINES)


@pytest.mark.parametrize("line", [b"\n", b": nothing happens\n", b"\r"])
async def test_a_flood_of_lines_that_are_no_event_leaves_other_work_its_turns(line: bytes) -> None:
    async with other_work() as work:
        response = flood(line * 8)
        async with contextlib.aclosing(frames(response, 2**20, EventCursor(), "a server")) as found:
            assert [frame async for frame in found] == []
        assert work.turns >= len(line) * LINES * 8 // (32 * 1024)
