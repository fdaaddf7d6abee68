"""Sends messages to a server and reads what it sends: over HTTP, with real sockets, and in lines."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import httpx2

from antiphon import Server
from antiphon.transport.server.stream_connection import StreamConnection
from tests.cli.command import PATIENCE, plain_environment
from tests.seeds.blocks import Frame
from tests.support.process import ROOT

__all__ = ["HttpWire", "Wire", "http_wire", "line_wire", "stdio_wire"]

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class Wire(Protocol):
    """One side of a connection."""

    async def send(self, body: str, headers: Mapping[str, str]) -> None:
        """Send a message; the headers are for HTTP alone."""

    async def read(self) -> Frame:
        """The next message from the server, in answer to whatever was sent."""


class HttpWire:
    """Posts each message by itself. What comes back stands in one line, as it comes."""

    session_id: str | None = None

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self.statuses: list[int] = []
        """The statuses of the messages to which there is no answer."""
        self._url = url
        self._client = client
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._open: list[asyncio.Task[None]] = []

    async def send(self, body: str, headers: Mapping[str, str]) -> None:
        if re.search(r'"method":.*"id":|"id":.*"method":', body, re.DOTALL):
            self._open.append(asyncio.create_task(self._ask(body, headers)))
            return
        answer = await self._client.post(self._url, content=body.encode(), headers={**JSON, **headers})
        self.statuses.append(answer.status_code)
        if answer.content:
            self._frames.put_nowait(answer.json())

    async def _ask(self, body: str, headers: Mapping[str, str]) -> None:
        request = self._client.stream("POST", self._url, content=body.encode(), headers={**JSON, **headers})
        async with request as answer:
            self.session_id = answer.headers.get("mcp-session-id", self.session_id)
            if not answer.headers["content-type"].startswith("text/event-stream"):
                self._frames.put_nowait(json.loads(await answer.aread()))
                return
            async for line in answer.aiter_lines():
                if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                    self._frames.put_nowait(json.loads(data))

    async def read(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            return await self._frames.get()

    def hang_up(self) -> None:
        """Read no more of the streams that are open."""
        for task in self._open:
            task.cancel()


class StdioWire:
    """Writes each message as a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, body: str, headers: Mapping[str, str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(body.splitlines()).encode() + b"\n")
        await self._process.stdin.drain()

    async def read(self) -> Frame:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self._process.stdout.readline()
        assert line, "the server has ended"
        return dict(json.loads(line))


@asynccontextmanager
async def http_wire(url: str) -> AsyncIterator[HttpWire]:
    """Connect to a server that is served already."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        wire = HttpWire(url, client)
        try:
            yield wire
        finally:
            wire.hang_up()


class LineWire:
    """Hands each message to a connection on standard streams that has no process."""

    def __init__(self, server: Server) -> None:
        self.connection = StreamConnection(server.engine, self._write, transport="pipe")
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()

    async def _write(self, line: bytes) -> None:
        self._frames.put_nowait(json.loads(line))

    async def send(self, body: str, headers: Mapping[str, str]) -> None:
        self.connection.receive(body)

    async def read(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            return await self._frames.get()


@asynccontextmanager
async def line_wire(target: str) -> AsyncIterator[LineWire]:
    """Connect to a server of `FILE` or `FILE:NAME` in this process."""
    file, _, name = target.partition(":")
    server = runpy.run_path(str(ROOT / file))[name or "server"]
    assert isinstance(server, Server)
    async with server.running():
        wire = LineWire(server)
        try:
            yield wire
        finally:
            await wire.connection.close(within=0)


@asynccontextmanager
async def stdio_wire(target: str) -> AsyncIterator[StdioWire]:
    """Start `antiphon run TARGET --stdio`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "run", target, "--stdio"),
        cwd=ROOT,
        env=plain_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield StdioWire(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
