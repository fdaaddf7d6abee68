"""Reading lines from a terminal: in pieces, with Ctrl-D, and after the terminal was closed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from antiphon.cli.call.terminal import NoAnswer, Terminal
from tests.support.polling import turns


class Keyboard:
    """Writes to the standard input of the command."""

    def __init__(self, ours: int) -> None:
        self._ours = ours

    def types(self, text: str) -> None:
        os.write(self._ours, text.encode())


@contextmanager
def standard_input(theirs: int) -> Iterator[None]:
    before = os.dup(0)
    os.dup2(theirs, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.fixture
def keyboard() -> Iterator[Keyboard]:
    theirs, ours = os.pipe()
    try:
        with standard_input(theirs):
            yield Keyboard(ours)
    finally:
        os.close(theirs)
        os.close(ours)


async def run_ready_callbacks() -> None:
    """Let all ready callbacks run."""
    await turns(3)


async def test_joins_a_line_that_arrives_in_pieces(keyboard: Keyboard) -> None:
    asked = Terminal()
    line = asyncio.create_task(asked.read_line("Name? "))
    for piece in ("A", "da", " Love"):
        await run_ready_callbacks()
        keyboard.types(piece)
    await run_ready_callbacks()
    assert not line.done()
    keyboard.types("lace\r\nnext\n")
    assert await line == "Ada Lovelace"


async def test_a_line_typed_for_a_cancelled_question_answers_the_next_one(keyboard: Keyboard) -> None:
    asked = Terminal()
    gone = asyncio.create_task(asked.read_line("First? "))
    await run_ready_callbacks()
    keyboard.types("Ada\n")
    await turns()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await asked.read_line("Second? ") == "Ada"


async def test_ctrl_c_is_left_to_the_command(keyboard: Keyboard) -> None:
    before = signal.getsignal(signal.SIGINT)
    line = asyncio.create_task(Terminal().read_line("Name? "))
    await run_ready_callbacks()
    assert signal.getsignal(signal.SIGINT) is before
    keyboard.types("Ada\n")
    assert await line == "Ada"


async def test_ctrl_d_discards_the_unfinished_line() -> None:
    theirs, ours = os.pipe()
    asked = Terminal()
    with standard_input(theirs):
        line = asyncio.create_task(asked.read_line("Name? "))
        await run_ready_callbacks()
        os.write(ours, b"Ad")
        await run_ready_callbacks()
        os.close(ours)
        with pytest.raises(NoAnswer) as left:
            await line
    os.close(theirs)
    assert left.value.action == "decline"
    theirs, ours = os.pipe()
    with standard_input(theirs):
        os.write(ours, b"Grace\n")
        assert await asked.read_line("Name? ") == "Grace"
    os.close(theirs)
    os.close(ours)


async def test_a_closed_terminal_cancels_the_question() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    with theirs, standard_input(theirs.fileno()):
        line = asyncio.create_task(Terminal().read_line("Name? "))
        await run_ready_callbacks()
        # Closing without lingering resets the connection.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()
        with pytest.raises(NoAnswer) as left:
            await line
    assert left.value.action == "cancel"
