"""Sends messages to a server and reads what it sends: over HTTP, with real sockets, and over pipes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import httpx2

from antiphon.cli.run.load import load_server
from tests.cli.command import COMMAND, PATIENCE, plain_environment
from tests.seeds.blocks import Frame
from tests.support.stdio import Streams, serving_pipes, stdio_process

__all__ = ["HttpWire", "Wire", "http_wire", "process_wire", "stdio_wire"]

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

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def send(self, body: str, headers: Mapping[str, str]) -> None:
        await self._streams.write(" ".join(body.splitlines()).encode() + b"\n")

    async def read(self) -> Frame:
        frame = await self._streams.read()
        assert frame is not None, "the server has ended"
        return frame


@asynccontextmanager
async def http_wire(url: str) -> AsyncIterator[HttpWire]:
    """Connect to a server that is served already."""
    # Without TLS there is nothing to verify, and to load the certificates takes longer than a replay.
    async with httpx2.AsyncClient(timeout=PATIENCE, verify=False) as client:
        wire = HttpWire(url, client)
        try:
            yield wire
        finally:
            wire.hang_up()


@asynccontextmanager
async def stdio_wire(target: str) -> AsyncIterator[StdioWire]:
    """Serve a new server of a target on pipes, as `antiphon run TARGET --stdio` does."""
    async with serving_pipes(load_server(target)) as streams:
        yield StdioWire(streams)


@asynccontextmanager
async def process_wire(target: str) -> AsyncIterator[StdioWire]:
    """Start `antiphon run TARGET --stdio`."""
    command = (*COMMAND, "run", target, "--stdio")
    async with stdio_process(*command, env=plain_environment()) as streams:
        yield StdioWire(streams)
