"""Fake servers: a plain socket that says what a test wants, and notes what it hears."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.polling import turns

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


@dataclass
class Heard:
    """One HTTP request."""

    verb: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def method(self) -> str:
        return str(self.body.get("method", ""))

    @property
    def id(self) -> Any:
        return self.body.get("id")

    @property
    def params(self) -> dict[str, Any]:
        return self.body.get("params", {})


@dataclass
class Fake:
    """A server on a port of its own. Each connection is one request."""

    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed a connection that was still being answered."""

    def methods(self) -> list[str]:
        return [request.method or request.verb for request in self.heard]


class Reply:
    """How a fake answers one request."""

    def __init__(self, writer: asyncio.StreamWriter, request: Heard) -> None:
        self._writer = writer
        self.request = request

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, kind: str | None, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", "connection: close"]
        if kind is not None:
            lines.append(f"content-type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def body(self, status: int, kind: str, data: bytes, **headers: str) -> None:
        await self.head(status, kind, content_length=str(len(data)), **headers)
        await self.raw(data)

    async def result(self, result: Any, **headers: str) -> None:
        await self.message({"id": self.request.id, "result": result}, **headers)

    async def error(self, code: int, status: int = 200, data: Any = None) -> None:
        error = {"code": code, "message": "No.", **({} if data is None else {"data": data})}
        await self.message({"id": self.request.id, "error": error}, status)

    async def message(self, fields: dict[str, Any], status: int = 200, **headers: str) -> None:
        await self.body(
            status, "application/json", json.dumps({"jsonrpc": "2.0", **fields}).encode(), **headers
        )

    async def events(self) -> None:
        await self.head(200, "text/event-stream")

    async def event(self, fields: dict[str, Any], id: str | None = None) -> None:
        head = "" if id is None else f"id: {id}\n"
        await self.raw(f"{head}data: {json.dumps({'jsonrpc': '2.0', **fields})}\n\n".encode())

    async def hang(self) -> None:
        await asyncio.Event().wait()


Answer = Callable[[Reply], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Fake]:
    """A fake that answers every request with `answer`."""
    fake = Fake()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.append(writer)
        if not server.is_serving():  # it came too late
            writer.transport.abort()
            return
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                request = await _read(reader)
                fake.heard.append(request)
                answering = asyncio.create_task(_until(answer, Reply(writer, request)))
                leaving = asyncio.create_task(reader.read())
                try:
                    await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    if not answering.done():
                        fake.gone.set()
                finally:
                    answering.cancel()
                    leaving.cancel()
                    await asyncio.wait({answering, leaving})
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=1 << 20)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield fake
    finally:
        # The event loop loses a connection that it accepts while the server closes.
        await turns(10)
        server.close()
        await turns(10)
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks))
        for writer in writers:  # a client that has gone does not read the rest
            writer.transport.abort()
        await turns(10)


async def _until(answer: Answer, reply: Reply) -> None:
    with suppress(ConnectionError):
        await answer(reply)


async def _read(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in head[1:-2]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Heard(head[0].split()[0], headers, json.loads(body) if body else {})


def modern(answer: Answer, **capabilities: Any) -> Answer:
    """A server of 2026-07-28 whose answers, apart from `server/discover`, are a test's own."""

    async def every(reply: Reply) -> None:
        if reply.request.method == "server/discover":
            await reply.result(
                {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": capabilities}
            )
        else:
            await answer(reply)

    return every


def legacy(
    answer: Answer, version: str = "2025-11-25", session: str | None = "s1", **capabilities: Any
) -> Answer:
    """A server with sessions whose answers, apart from the handshake, are a test's own."""

    async def every(reply: Reply) -> None:
        method, verb = reply.request.method, reply.request.verb
        if method == "server/discover":
            await reply.body(400, "text/plain", b"What?")
        elif method == "initialize":
            info = {"name": "fake", "version": "1"}
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            await reply.result(result, **({} if session is None else {"mcp_session_id": session}))
        elif method == "notifications/initialized" or verb == "DELETE":
            await reply.head(202, None, content_length="0")
        else:
            await answer(reply)

    return every
