"""A server process on its standard streams."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.process import ROOT, SERVERS, environment

TIMEOUT_SECONDS = 30.0


class StdioServer:
    """The client's side of a server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame."""
        await self.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    async def read(self) -> dict[str, Any] | None:
        """The next frame, or `None` at the end; fails for a line that is no frame."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            line = await self.process.stdout.readline()
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
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def ended(self) -> tuple[int, str]:
        """Wait until the process ends; its status, and what it wrote to the standard error."""
        assert self.process.stderr is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            errors = await self.process.stderr.read()
            return await self.process.wait(), errors.decode()


@asynccontextmanager
async def stdio_server(
    script: str = "everything.py", *, limit: int = 16 * 1024 * 1024
) -> AsyncIterator[StdioServer]:
    """Start `python SCRIPT --stdio`. What nobody reads is taken from it up to twice the `limit`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVERS / script),
        "--stdio",
        cwd=Path(ROOT),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=limit,
    )
    try:
        yield StdioServer(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        process._transport.close()  # type: ignore[attr-defined]
