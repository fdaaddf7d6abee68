"""Proxies: a plain load balancer, which sends each request to the next backend, and a tunnel.

The tunnel forwards bytes, and can stop forwarding without closing a connection, as a lost network does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager


class RoundRobin:
    """A load balancer: its port, its backends, and the requests that each served."""

    def __init__(self, backends: Sequence[int]) -> None:
        self.backends = list(backends)
        self.served: list[int] = []
        self.port = 0
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Close the connections that are open now."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Stop forwarding, and close all connections."""
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task that `close` can cancel."""
        task = asyncio.create_task(self.serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it begins never comes to its own clean-up.
        task.add_done_callback(lambda _: writer.close())

    async def _pick(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self.backends:
            port = self.backends[self._next % len(self.backends)]
            self._next += 1
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            return port, reader, writer
        raise ConnectionError("no backend answers")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one request and its whole response, then close the connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = await reader.readexactly(length)
            port, back_reader, back_writer = await self._pick()
            self.served.append(port)
            try:
                back_writer.write(head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + body)
                await back_writer.drain()
                while chunk := await back_reader.read(65536):
                    writer.write(chunk)
                    await writer.drain()
            finally:
                await _closed(back_writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def round_robin(backends: Sequence[int]) -> AsyncIterator[RoundRobin]:
    """Balance between these ports."""
    balancer = RoundRobin(backends)
    server = await asyncio.start_server(balancer.accept, "127.0.0.1", 0)
    balancer.port = server.sockets[0].getsockname()[1]
    try:
        yield balancer
    finally:
        server.close()
        await balancer.close()
        await server.wait_closed()


class Tunnel:
    """Forwards each connection to a port, until it is told to freeze or to drop the open connections."""

    def __init__(self, backend: int) -> None:
        self.backend = backend
        self.port = 0
        self.accepted = 0
        """The number of connections so far."""
        self._frozen: set[asyncio.StreamWriter] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL of the endpoint behind the tunnel."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def freeze(self) -> None:
        """Forward nothing on the connections that are open now, and leave both of their ends open."""
        self._frozen |= self._writers

    def drop(self) -> None:
        """Close the connections that are open now."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection in both directions."""
        self.accepted += 1
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.backend)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, back_writer}
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close all connections."""
        for task in tuple(self._tasks):
            task.cancel()
        for writer in self._writers:
            writer.close()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(65536):
                if sink not in self._frozen:
                    sink.write(chunk)
                    await sink.drain()
        if sink not in self._frozen:
            sink.close()


@asynccontextmanager
async def tunnel(backend: int) -> AsyncIterator[Tunnel]:
    """Run a tunnel to a port."""
    proxy = Tunnel(backend)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
