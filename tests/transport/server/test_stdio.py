"""Reading standard input and writing standard output, for pipes and files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from antiphon import Limits, Server
from antiphon.transport.server import stdio
from antiphon.transport.server.stream_connection import StreamConnection
from tests.support.polling import turns

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture
def given(tmp_path: Path) -> Callable[[bytes], BinaryIO]:
    """Return a function that creates a file to read from, as a shell does with `<`."""

    def make(content: bytes) -> BinaryIO:
        (tmp_path / "input").write_bytes(content)
        return (tmp_path / "input").open("rb", buffering=0)

    return make


async def lines(source: BinaryIO, limit: int) -> list[bytes | None]:
    with source:
        return [line async for line in stdio.read_lines(source, limit)]


async def test_a_last_line_without_a_line_feed_is_read(
    given: Callable[[bytes], BinaryIO],
) -> None:
    assert await lines(given(b"one\n\ntwo\nlast"), 10) == [b"one", b"", b"two", b"last"]
    assert await lines(given(b"one\n"), 10) == [b"one"]
    assert await lines(given(b""), 10) == []


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
async def test_a_line_over_the_limit_is_none_for_any_read_size(
    given: Callable[[bytes], BinaryIO], monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(stdio, "READ_BYTES", chunk)
    text = b"short\n" + b"x" * 50 + b"\njust ten..\n" + b"x" * 12 + b"\nend\n"
    assert await lines(given(text), 10) == [b"short", None, b"just ten..", None, b"end"]
    assert await lines(given(b"end\n" + b"x" * 50), 10) == [b"end"]


async def test_a_line_that_is_too_long_is_refused_an_empty_one_ignored_and_the_next_served(
    given: Callable[[bytes], BinaryIO], tmp_path: Path
) -> None:
    with (tmp_path / "output").open("wb", buffering=0) as sink:
        output = stdio.Output(sink)
        connection = StreamConnection(Server("tests").engine, output.write)
        with given(b"x" * 200 + b"\n  \n\n" + PING + b"\n") as source:
            await stdio.read_messages(source, Limits(max_body_bytes=100), connection, output)
        await connection.close(within=5)
        await output.close()
        assert sink.closed
    frames = [json.loads(line) for line in (tmp_path / "output").read_bytes().splitlines()]
    assert [(frame.get("id"), frame.get("error", {}).get("code")) for frame in frames] == [
        (None, -32600),
        (1, None),
    ]
    assert frames[0]["error"]["message"] == "The message is too large: this server accepts at most 100 bytes."


async def test_the_end_of_a_device_that_epoll_refuses_is_noticed() -> None:
    with Path(os.devnull).open("rb", buffering=0) as source:
        async with asyncio.timeout(60):
            assert await lines(source, 10) == []


class Stuck:
    """A standard output that is a file, and blocks until the test releases it."""

    def __init__(self, file: BinaryIO) -> None:
        self.fileno = file.fileno
        self.begun = threading.Event()
        self.go = threading.Event()

    def write(self, data: bytes) -> None:
        self.begun.set()
        self.go.wait(60)


async def test_closing_a_blocked_output_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stdio, "FLUSH_SECONDS", 0.05)
    with (tmp_path / "output").open("wb") as file:
        sink: Any = Stuck(file)
        output = stdio.Output(sink)
        writing = asyncio.create_task(output.write(b"{}"))
        assert await asyncio.to_thread(sink.begun.wait, 60)
        await output.close()
        assert not writing.done()
        sink.go.set()
        await writing


async def test_output_that_the_client_does_not_read_is_discarded_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "FLUSH_SECONDS", 0.05)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        pass
    output = stdio.Output(os.fdopen(writing, "wb", buffering=0))
    await output.write(b"the last word")
    await output.close()
    await turns()
    os.set_blocking(reading, False)
    taken = b""
    while more := os.read(reading, 1 << 20):
        taken += more
    os.close(reading)
    assert taken.strip(b"x") == b""


async def test_writing_after_the_client_closed_the_stream_is_ignored() -> None:
    reading, writing = os.pipe()
    output = stdio.Output(os.fdopen(writing, "wb", buffering=0))
    await output.write(b"{}")
    os.close(reading)
    for _ in range(3):
        await output.write(b"x" * 100_000)
    assert output.is_closed
    await output.close()


async def test_a_second_stop_signal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Callable[[], None]] = {}
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", handlers.__setitem__)
    stopped = stdio.stop_signal()
    assert not stopped.done()
    handlers[signal.SIGTERM]()
    handlers[signal.SIGINT]()
    handlers[signal.SIGTERM]()
    assert stopped.done()


async def test_signals_are_ignored_outside_the_main_thread() -> None:
    async def is_stopped() -> bool:
        return stdio.stop_signal().done()

    assert not await asyncio.to_thread(lambda: asyncio.run(is_stopped()))
