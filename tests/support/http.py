"""Raw HTTP/1.1 over a socket: what is sent is exactly what a test writes, and every wait has an end.

It reads events with a parser of its own, so that a mistake in ours cannot hide itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_SECONDS = 60.0
"""How long a request waits. A test that moves the time of the event loop further sets it."""
LOOPBACK = "127.0.0.1"
OTHER_LOOPBACK = "127.0.0.2"
"""Another address of the same machine: to a server, a client from there is somebody else."""


@dataclass
class Event:
    """One event of a stream; a comment has `comment` and nothing else."""

    data: str = ""
    id: str | None = None
    retry: int | None = None
    comment: bool = False

    @property
    def frame(self) -> dict[str, Any]:
        """The message of the event."""
        return dict(json.loads(self.data))


@dataclass
class Response:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def is_stream(self) -> bool:
        """Whether it is an event stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def events(self) -> list[Event]:
        """The events, without comments."""
        return [event for event in parse_events(self.body.decode()) if not event.comment]

    @property
    def frames(self) -> list[dict[str, Any]]:
        """All messages of the response, in order."""
        if self.is_stream:
            return [event.frame for event in self.events if event.data]
        return [json.loads(self.body)] if self.body else []

    @property
    def frame(self) -> dict[str, Any]:
        """The last message of the response: the answer to the request."""
        return self.frames[-1]

    @property
    def result(self) -> dict[str, Any]:
        """The result in the answer."""
        assert "result" in self.frame, self.frame
        return dict(self.frame["result"])

    @property
    def error(self) -> dict[str, Any]:
        """The error in the answer."""
        assert "error" in self.frame, self.frame
        return dict(self.frame["error"])

    @property
    def text(self) -> str:
        """The text of the tool result."""
        return "\n".join(block["text"] for block in self.result["content"])


def parse_events(text: str) -> list[Event]:
    """Parse the events of a complete stream, whose lines end with a line feed."""
    events = []
    for block in text.split("\n\n"):
        if block:
            events.append(_parse(block))
    return events


def _parse(block: str) -> Event:
    event = Event()
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            event.comment = True
        elif name == "data":
            event.data += value
        elif (name, value) == ("event", "message"):
            continue
        elif name == "id":
            event.id = value
        elif name == "retry":
            event.retry = int(value)
        else:
            raise AssertionError(f"a field that we never write: {line!r}")
    return event


@dataclass
class Connection:
    """One connection to a server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _rest: bytearray = field(default_factory=bytearray)
    _headers: dict[str, str] = field(default_factory=dict)

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.writer.drain()

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request; `Host` and `Content-Length` are added unless given."""
        await self.write(head(method, path, headers, len(body)) + body)

    async def receive_head(self) -> Response:
        """Read the status and the headers, without the body."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        self._headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        return Response(int(status.split(" ")[1]), self._headers)

    async def chunks(self, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they arrive."""
        timeout = TIMEOUT_SECONDS if timeout is None else timeout
        if "content-length" in self._headers:
            async with asyncio.timeout(timeout):
                yield await self.reader.readexactly(int(self._headers["content-length"]))
            return
        assert self._headers.get("transfer-encoding") == "chunked", self._headers
        while True:
            async with asyncio.timeout(timeout):
                size = int(await self.reader.readuntil(b"\r\n"), 16)
                piece = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield piece[:-2]

    async def receive(self) -> Response:
        """Read a whole response."""
        response = await self.receive_head()
        async for piece in self.chunks():
            response.body += piece
        return response

    async def events(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """Yield the events of a stream as they arrive, and comments."""
        buffer = ""
        async for piece in self.chunks(timeout):
            *blocks, buffer = (buffer + piece.decode()).split("\n\n")
            for block in blocks:
                yield _parse(block)

    def vanish(self) -> None:
        """Abort the connection."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass


def head(method: str, path: str, headers: Mapping[str, str], length: int | None) -> bytes:
    """Return the bytes of a request up to its body."""
    lines = {"host": "127.0.0.1", **{name.lower(): value for name, value in headers.items()}}
    if length is not None and "content-length" not in lines and "transfer-encoding" not in lines:
        lines["content-length"] = str(length)
    text = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return (text + "\r\n").encode("latin-1")


@asynccontextmanager
async def connect(port: int, source: str = LOOPBACK) -> AsyncIterator[Connection]:
    """Open a connection to a local server, from an address of this machine."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, local_addr=(source, 0))
    connection = Connection(reader, writer)
    try:
        yield connection
    finally:
        await connection.close()


async def request(
    port: int,
    method: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    path: str = "/mcp",
    *,
    source: str = LOOPBACK,
) -> Response:
    """Send one request on a new connection."""
    async with connect(port, source) as connection:
        await connection.send(method, path, headers, body)
        return await connection.receive()
