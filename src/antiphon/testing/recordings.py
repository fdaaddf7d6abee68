"""Recordings: what a client and its server said to each other, and a server that answers from such a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.client import Client
from antiphon.client.recording import record_messages
from antiphon.transport.client.recording import RecordedMessage
from antiphon.transport.client.recording_file import read_lines, write_lines
from antiphon.transport.client.replay import ReplayChannel

__all__ = ["record", "replay"]


@contextmanager
def record(client: Client, file: str | Path) -> Iterator[None]:
    """Record the messages of a client that is not connected yet; `replay` answers from the file.

    Writes the file at the end of the block. It has arguments, answers and results, but no headers and so no
    tokens. Raises `OSError` if the file cannot be written.
    """
    path, messages = Path(file), list[RecordedMessage]()
    stop = record_messages(client, messages.append)
    try:
        yield
    finally:
        stop()
        server = "" if client.server is None else client.server.name
        path.write_bytes(b"".join(write_lines(messages, server=server, version=client.version)))


def replay(file: str | Path) -> ReplayChannel:
    """Return a recorded server for a client: `async with Client(replay("messages.jsonl")) as client: ...`

    `record` and the console's workbench write such files. A request gets the response of the first recorded
    one with the same method and params that was not used yet. Raises `ValueError` for a file that is not a
    recording, and `OSError`.
    """
    path = Path(file)
    return ReplayChannel(read_lines(path.read_bytes()), f"The recording {path.name}")
