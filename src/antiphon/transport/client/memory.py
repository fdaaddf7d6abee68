"""The channel to a server in the same process. It carries the same frames as any other channel."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.runtime.engine import Engine
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.line_channel import LineChannel, LineConnection
from antiphon.transport.server.stream_connection import StreamConnection

__all__ = ["connect"]

MAX_UNREAD_FRAMES = 1024
_CLOSE_SECONDS = 1.0
"""How long running calls may take to end when the channel closes."""


def connect(server: Engine, principal: Principal = ANONYMOUS) -> MemoryChannel:
    """Return a channel to a server in this process, whose caller is `principal`."""
    return MemoryChannel(server, principal)


class MemoryChannel(LineChannel):
    """A channel to a server in this process; the server runs while the channel is open."""

    def __init__(self, server: Engine, principal: Principal = ANONYMOUS) -> None:
        super().__init__(f"the server {server.info.name!r} in this process")
        self._server = server
        self._principal = principal
        self._running = AsyncExitStack()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(MAX_UNREAD_FRAMES)
        self._connection: StreamConnection | None = None

    async def open(self, receive: Receiver) -> None:
        """Start the server."""
        self._frames = asyncio.Queue(MAX_UNREAD_FRAMES)  # of the event loop that runs now
        await self._running.enter_async_context(self._server.running())
        connection = self._connection = StreamConnection(
            self._server, self._deliver, principal=self._principal
        )

        async def write(line: bytes) -> None:
            connection.receive(line)

        limit = 16 * self._server.limits.max_body_bytes
        self._lines = LineConnection(self.peer, self._read, write, receive, max_message=limit)

    async def close(self) -> None:
        """Stop the server."""
        lines, self._lines = self._lines, None
        if lines is not None and self._connection is not None:
            await lines.close()
            await self._connection.close(within=_CLOSE_SECONDS)
        await self._running.aclose()

    async def _deliver(self, frame: bytes) -> None:
        if self._lines is not None:
            await self._frames.put(frame + b"\n")

    async def _read(self, most: int) -> bytes:
        return await self._frames.get()
