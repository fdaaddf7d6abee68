"""One keep-alive HTTP/1.1 connection that reads as little of an answer as it must.

It owns finding where an answer ends (content length, or the last chunk of a chunked body), and knows
nothing of MCP. It is no HTTP client: it trusts a server on the loopback that answers in order.
"""

import asyncio
from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple, Protocol, cast

__all__ = ["Answer", "Connection", "Listener"]

MAX_ANSWER = 1 << 20
"""Bytes of one answer after which the connection is given up."""


class Answer(NamedTuple):
    """What came back: status, head, and the body as sent (chunk sizes included)."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of header `name` (lower case), which is None where there is none."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name.encode():
                return value.strip().decode()
        return None


class Listener(Protocol):
    """Who is told what happens on a connection."""

    def answered(self, connection: "Connection", answer: Answer) -> None: ...

    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """A connection with at most one request in flight."""

    __slots__ = ("_buffer", "_listener", "_transport", "closed", "number", "requests", "sent_at")

    def __init__(self, number: int, listener: Listener) -> None:
        self.number = number
        self.requests: Iterator[bytes] = repeat(b"")
        self.sent_at = 0
        self.closed = False
        self._listener = listener
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._listener.lost(self)

    def send(self, request: bytes) -> None:
        """Write one request; its answer goes to the listener."""
        assert self._transport is not None
        self._transport.write(request)

    def close(self) -> None:
        """Close the connection; nothing more is heard of it."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            head = data[:end]
            start = end + 4
            if _complete(head.lower(), data, start):
                self._buffer = b""
                self._listener.answered(self, Answer(int(head[9:12]), head, data[start:]))
                return
        if len(data) > MAX_ANSWER:
            self.close()
        self._buffer = data


def _complete(head: bytes, data: bytes, start: int) -> bool:
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        stop = head.find(b"\r\n", at + 2)
        length = int(head[at + 17 : stop if stop >= 0 else None])
        return len(data) >= start + length
    if b"\r\ntransfer-encoding: chunked" in head:
        return data.endswith(b"0\r\n\r\n")
    return head[9:12] in (b"202", b"204", b"304")
