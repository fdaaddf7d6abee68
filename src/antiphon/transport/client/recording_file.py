"""The file format of recorded messages: JSON lines, so that a test, `grep` and a spreadsheet can read it.

The first line describes the recording: `{"antiphon": "messages", "format": 1, "server": …, "version": …,
"recorded": …}`. Every other line is one message: `{"at": …, "from": "client", "message": {…}}`. `at` is in
seconds since the first message, and `from` is `client` or `server`. A request that failed on the way has a
line `{"at": …, "from": "server", "id": …, "failure": …}` in place of its response.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from antiphon.model.request import RequestId
from antiphon.transport.client.recording import RecordedMessage

__all__ = ["FORMAT", "RecordedLine", "read_lines", "write_lines"]

FORMAT = 1


class _Head(msgspec.Struct, frozen=True, omit_defaults=True):
    antiphon: Literal["messages"]
    format: int
    server: str = ""
    version: str = ""
    recorded: str = ""


class RecordedLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a recording."""

    at: float
    sender: Literal["client", "server"] = msgspec.field(name="from")
    message: msgspec.Raw = msgspec.Raw()
    """The message as JSON; empty if the request failed on the way."""
    id: RequestId | None = None
    """The id of the request that failed on the way."""
    failure: str = ""


_head_decoder = msgspec.json.Decoder(_Head)
_line_decoder = msgspec.json.Decoder(RecordedLine)


def write_lines(messages: Sequence[RecordedMessage], *, server: str, version: str) -> Iterable[bytes]:
    """Yield the lines of a recording, each with its line break."""
    start = messages[0].at if messages else 0.0
    recorded = datetime.fromtimestamp(start, UTC).isoformat(timespec="seconds") if messages else ""
    yield msgspec.json.encode(_Head("messages", FORMAT, server, version, recorded)) + b"\n"
    for message in messages:
        line: dict[str, Any] = {"at": round(message.at - start, 6), "from": message.sender}
        if message.failure:
            line |= {"id": message.id, "failure": message.failure}
        else:
            line["message"] = msgspec.Raw(message.body)
        yield msgspec.json.encode(line) + b"\n"


def read_lines(content: bytes) -> list[RecordedLine]:
    """Return the lines of a recording; raises `ValueError` if the content is not one."""
    head, *lines = content.splitlines() or [b""]
    try:
        if (found := _head_decoder.decode(head).format) > FORMAT:
            raise ValueError(f"The recording has format {found}: this version reads {FORMAT}.")
    except msgspec.DecodeError:
        raise ValueError("This is not a recording: its first line does not describe one.") from None
    read = []
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        try:
            read.append(_line_decoder.decode(line))
        except msgspec.DecodeError as error:
            raise ValueError(f"Line {number} of the recording cannot be read: {error}.") from None
    return read
