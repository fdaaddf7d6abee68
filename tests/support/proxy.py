"""A plain load balancer: each request goes to the next backend, on a connection of its own."""

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

    async def close(self) -> None:
        """Stop forwarding, and close all connections."""
        for task in self._tasks:
            task.cancel()
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
