"""Lines that a person types, as the command reads them: in pieces, with Ctrl-C, or not at all."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.call.terminal import NoAnswer, Terminal
from antiphon.client import Elicitation


class Keyboard:
    """What the standard input comes from; what is typed arrives at once."""

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


async def turn() -> None:
    """Let everything run that is ready now."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_line_that_comes_in_pieces_is_one_line(keyboard: Keyboard) -> None:
    asked = Terminal()
    line = asyncio.create_task(asked.read_line("Name? "))
    for piece in ("A", "da", " Love"):
        await turn()
        keyboard.types(piece)
    await turn()
    assert not line.done()
    keyboard.types("lace\r\nnext\n")
    assert await line == "Ada Lovelace"


async def test_what_is_typed_when_its_question_goes_is_for_the_next_one(keyboard: Keyboard) -> None:
    asked = Terminal()
    gone = asyncio.create_task(asked.read_line("First? "))
    await turn()
    keyboard.types("Ada\n")
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await asked.read_line("Second? ") == "Ada"


async def test_pressing_ctrl_c_twice_is_pressing_it_once(keyboard: Keyboard) -> None:
    line = asyncio.create_task(Terminal().read_line("Name? "))
    await turn()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(NoAnswer) as left:
        await line
    assert left.value.action == "cancel"


async def test_what_was_begun_before_ctrl_c_is_forgotten(keyboard: Keyboard) -> None:
    asked = Terminal()
    line = asyncio.create_task(asked.read_line("Name? "))
    await turn()
    keyboard.types("Ad")
    await turn()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(NoAnswer):
        await line
    keyboard.types("Bob\n")
    assert await asked.read_line("Name? ") == "Bob"


async def test_where_the_connection_to_the_person_breaks_the_question_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    with theirs, standard_input(theirs.fileno()):
        line = asyncio.create_task(Terminal().read_line("Name? "))
        await turn()
        # To close it without having lingered is to break it.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()
        with pytest.raises(NoAnswer) as left:
            await line
    assert left.value.action == "cancel"


async def answered(
    question: Elicitation, lines: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[str]]:
    """What is answered where someone types these lines, and what they were shown."""
    typed, shown = iter(lines), list[str]()

    async def line(terminal: Terminal, prompt: str) -> str:
        shown.append(prompt)
        return next(typed)

    monkeypatch.setattr(Terminal, "is_interactive", lambda: True)
    monkeypatch.setattr(Terminal, "show", lambda terminal, text, style="": shown.append(text))
    monkeypatch.setattr(Terminal, "read_line", line)
    return await ElicitationHandler(PreparedAnswers())(question), shown


@pytest.mark.parametrize(
    ("least", "lines", "chosen", "said"),
    [(0, ("",), [], []), (1, ("", "2"), ["b"], ["tags: choose at least 1."])],
)
async def test_nothing_is_an_answer_to_a_list_that_may_be_empty(
    least: int, lines: tuple[str, ...], chosen: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": least}
    question = Elicitation("Which?", {"properties": {"tags": tags}, "required": ["tags"]})
    answer, shown = await answered(question, lines, monkeypatch)
    assert answer == {"tags": chosen}
    assert [line for line in shown if line.startswith("tags: ")] == said


@pytest.mark.parametrize(
    ("url", "host"),
    [("http://[::1", "unreadable"), ("mailto:ada", "missing"), ("http://a.b/c", "a.b")],
)
async def test_the_host_of_an_address_is_told_also_where_there_is_none(
    url: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, shown = await answered(Elicitation("Go.", mode="url", url=url), ["yes"], monkeypatch)
    assert answer == {}
    assert f"Its host is {host}. The URL is not opened for you." in shown
