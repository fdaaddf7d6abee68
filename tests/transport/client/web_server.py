"""A server on a socket that keeps connections open, records every request, and answers as a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.polling import turns


@dataclass
class Asked:
    """One request."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class WebServer:
    """What a test knows of the server."""

    url: str = ""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    readers: list[asyncio.StreamReader] = field(default_factory=list)

    @property
    def open_connections(self) -> int:
        return sum(not writer.is_closing() for writer in self.connections)

    def is_left(self, number: int) -> bool:
        """Return whether the client has closed a connection."""
        return self.readers[number].at_eof() or self.connections[number].is_closing()

    def hang_up(self) -> None:
        """Close all connections from the server's side."""
        for writer in self.connections:
            writer.close()


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


def response(
    body: bytes = b"{}", status: str = "200 OK", kind: str = "application/json", *more: str
) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def always(data: bytes) -> Answer:
    """Answer each request with these bytes."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


@asynccontextmanager
async def web_server(
    answer: Answer, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[WebServer]:
    server = WebServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        number = len(server.connections)
        server.connections.append(writer)
        server.readers.append(reader)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                if not (first := await reader.readexactly(1)).isalpha():  # TLS, for example
                    writer.write(response(b"", "400 Bad Request"))
                    break
                head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = [(name, value.strip()) for name, _, value in (h.partition(":") for h in head[1:-2])]
                asked = Asked(head[0], headers, b"", number)
                asked.body = await reader.readexactly(int(asked.header("content-length") or 0))
                server.asked.append(asked)
                await answer(asked, writer)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    place = f"[{host}]" if ":" in host else host
    server.url = f"{'http' if tls is None else 'https'}://{place}:{server.port}/mcp"
    try:
        yield server
    finally:
        listening.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks))
        for writer in server.connections:
            writer.transport.abort()
        await turns()
