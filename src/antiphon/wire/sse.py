"""Writes and reads server-sent events. The decoder bounds its memory.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import msgspec

from antiphon.errors import BadAnswer

__all__ = ["COMMENT", "Decoder", "Event", "event"]

_MARK = "\ufeff".encode()
_LINE_BYTES = 64
"""How much memory a line needs beside its text."""

COMMENT = b":\n\n"
"""A comment, which readers ignore. It keeps a connection alive."""


class Event(msgspec.Struct, frozen=True):
    """One event; `id` and `retry` are `None` if the event has none."""

    data: str
    name: str = "message"
    id: str | None = None
    retry: int | None = None


def event(data: bytes, *, name: str = "message", id: str | None = None, retry: int | None = None) -> bytes:
    """Write one event. `data` is one line, as encoded JSON always is; an event without data has no name."""
    head = b"event: " + name.encode() + b"\n" if data else b""
    if id is not None:
        head += b"id: " + id.encode() + b"\n"
    if retry is not None:
        head += b"retry: %d\n" % retry
    return head + b"data: " + data + b"\n\n"


class Decoder:
    """Reads events from chunks.

    Raises `BadAnswer` for an event of more than `limit` bytes.
    """

    def __init__(self, limit: int = 64 * 1024 * 1024) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[str] = []
        self._size = 0
        self._name = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._started = False
        self._skip_newline = False

    @property
    def unfinished(self) -> int:
        """How much is kept of an event that is not complete."""
        return len(self._buffer) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> list[Event]:
        """Add a chunk, and return the events that are complete; raises `BadAnswer`."""
        self._buffer += chunk
        events: list[Event] = []
        for line in self._lines() if self._started or self._start() else ():
            if line:
                self._field(line)
            elif (ready := self._dispatch()) is not None:
                events.append(ready)
        if len(self._buffer) + self._size > self._limit:
            raise BadAnswer(f"The server sent an event of more than {self._limit} bytes.")
        return events

    def _start(self) -> bool:
        """Skip a byte order mark; return false if the bytes so far may be the beginning of one."""
        if len(self._buffer) < len(_MARK) and _MARK.startswith(bytes(self._buffer)):
            return False
        self._started = True
        if self._buffer.startswith(_MARK):
            del self._buffer[: len(_MARK)]
        return True

    def _lines(self) -> list[bytes]:
        """Remove complete lines from the buffer and return them; a line ends with LF, CR or CRLF."""
        buffer = self._buffer
        if self._skip_newline and buffer:
            if buffer[0] == 10:
                del buffer[0]
            self._skip_newline = False
        if buffer.find(b"\r", self._scanned) < 0:
            end = buffer.rfind(b"\n", self._scanned)
            if end < 0:
                self._scanned = len(buffer)
                return []
            whole = bytes(buffer[:end])
            del buffer[: end + 1]
            self._scanned = 0
            return whole.split(b"\n")
        self._skip_newline = buffer.endswith(b"\r")
        *lines, rest = bytes(buffer).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        buffer[:] = rest
        self._scanned = 0
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not name:
            return
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._size += len(line) + _LINE_BYTES
            self._data.append(text)
        elif name == b"event":
            self._name = text
        elif name == b"id" and "\0" not in text:
            self._id = text
        elif name == b"retry" and text.isascii() and text.isdigit():
            self._retry = int(text[:12])

    def _dispatch(self) -> Event | None:
        if not self._data and self._id is None and self._retry is None:
            self._name = ""
            return None
        ready = Event("\n".join(self._data), self._name or "message", self._id, self._retry)
        self._data = []
        self._size = 0
        self._name = ""
        self._id = self._retry = None
        return ready
