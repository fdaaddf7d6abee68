"""A server on its standard streams: a process, or as cheap as can be, in the event loop of the test."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from antiphon import Server
from antiphon.transport.server.stdio import serve_streams
from tests.support.process import ROOT, SERVERS, environment

TIMEOUT_SECONDS = 60.0
MAX_LINE = 16 * 1024 * 1024


class Streams:
    """The client's side of the two streams."""

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._writer = writer
        self._reader = reader

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame."""
        await self.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    async def read(self) -> dict[str, Any] | None:
        """The next frame, or `None` at the end; fails for a line that is no frame."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            line = await self._reader.readline()
        return dict(json.loads(line)) if line else None

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
        """Send a request and read its response."""
        await self.send({"id": id, "method": method, "params": dict(params or {})})
        while (frame := await self.read()) is not None:
            if frame.get("id") == id:
                return frame
        raise AssertionError("the server has closed its output")

    async def text(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        frame = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        return str(frame["result"]["content"][0]["text"])

    def hang_up(self) -> None:
        """Send no more."""
        self._writer.close()


class StdioServer(Streams):
    """The client's side of a server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdin, process.stdout)
        self.process = process

    async def ended(self) -> tuple[int, str]:
        """Wait until the process ends; its status, and what it wrote to the standard error."""
        assert self.process.stderr is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            errors = await self.process.stderr.read()
            return await self.process.wait(), errors.decode()


@asynccontextmanager
async def stdio_server(script: str = "everything.py", *, limit: int = MAX_LINE) -> AsyncIterator[StdioServer]:
    """Start `python SCRIPT --stdio`. What nobody reads is taken from it up to twice the `limit`."""
    async with stdio_process(sys.executable, SERVERS / script, "--stdio", limit=limit) as process:
        yield process


@asynccontextmanager
async def stdio_process(
    *command: str | Path, env: Mapping[str, str] | None = None, limit: int = MAX_LINE
) -> AsyncIterator[StdioServer]:
    """Start a command that serves on its standard streams."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(limit, loop),
        *command,
        cwd=ROOT,
        env=environment() if env is None else env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    process = asyncio.subprocess.Process(transport, protocol, loop)
    try:
        yield StdioServer(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        transport.close()


@asynccontextmanager
async def serving_pipes(server: Server) -> AsyncIterator[Streams]:
    """Serve on two pipes in this process, as a server process does on its standard streams.

    What a call or a task still does at the end is stopped, as if the process was killed.
    """
    server.engine.limits = dataclasses.replace(server.engine.limits, drain_timeout=0)
    loop = asyncio.get_running_loop()
    (source, ours), (theirs, sink) = os.pipe(), os.pipe()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(theirs, "rb", buffering=0)
    )
    outgoing, flow = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(ours, "wb", buffering=0)
    )
    streams = Streams(asyncio.StreamWriter(outgoing, flow, None, loop), reader)
    async with server.running():
        serving = asyncio.ensure_future(
            serve_streams(
                server.engine,
                os.fdopen(source, "rb", buffering=0),
                os.fdopen(sink, "wb", buffering=0),
                loop.create_future(),
            )
        )
        try:
            yield streams
        finally:
            outgoing.close()
            await serving
            incoming.close()
