"""A client and a server in one process, with the same frames between them as anywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

from antiphon.errors import Unreachable
from antiphon.runtime.host import Host
from antiphon.transport.channel import Receiver
from antiphon.transport.connection import Connection
from antiphon.transport.duplex import Duplex
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.speaker import Message

__all__ = ["connect"]

_UNREAD = 1024
_GRACE = 1.0


def connect(server: Host) -> MemoryChannel:
    """A way to a server in this process."""
    return MemoryChannel(server)


class MemoryChannel:
    """A way to a server in this process; the server runs as long as the channel is open."""

    has_streams = False
    has_headers = False

    def __init__(self, server: Host) -> None:
        self._server = server
        self._running = AsyncExitStack()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(_UNREAD)
        self._connection: Connection | None = None
        self._duplex: Duplex | None = None
        self.peer = f"the server {server.info.name!r} in this process"

    async def open(self, receive: Receiver) -> None:
        """Start the server."""
        await self._running.enter_async_context(self._server.running())
        self._connection = Connection(self._server, self._deliver)
        limit = 16 * self._server.limits.body
        self._duplex = Duplex(self.peer, self._read, self._write, receive, max_message=limit)

    async def request(self, message: Message) -> Frame:
        """Send a request and wait for its response."""
        return await self._open_duplex().request(message)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        await self._open_duplex().send(message)

    async def listen(self, headers: Mapping[str, str]) -> None:
        """There is one stream, and it is open."""

    async def end(self, headers: Mapping[str, str]) -> None:
        """The session is the connection."""

    async def close(self) -> None:
        """Let the server go."""
        duplex, self._duplex = self._duplex, None
        if duplex is not None and self._connection is not None:
            await duplex.close()
            await self._connection.close(within=_GRACE)
        await self._running.aclose()

    async def _deliver(self, frame: bytes) -> None:
        if self._duplex is not None:
            await self._frames.put(frame + b"\n")

    async def _read(self, most: int) -> bytes:
        return await self._frames.get()

    async def _write(self, line: bytes) -> None:
        if self._connection is not None:
            self._connection.receive(line)

    def _open_duplex(self) -> Duplex:
        if self._duplex is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        return self._duplex
