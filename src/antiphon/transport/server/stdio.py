"""Serving one client on the standard streams: one frame a line.

Owns the two streams. What an author prints goes to the standard error, since the standard output
may carry nothing but frames.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

from antiphon.runtime.engine import Engine
from antiphon.transport.server.stream_connection import StreamConnection
from antiphon.wire import jsonrpc

__all__ = ["serve"]

_CHUNK = 64 * 1024
_PATIENCE = 5.0
"""How long calls may go on, and what they said may wait to be read, after the client closed its end."""


async def serve(host: Engine) -> None:
    """Serve until the client closes the standard input, or a signal ends the process."""
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    sink = os.fdopen(os.dup(1), "wb", buffering=0)
    sys.stdout.flush()
    os.dup2(2, 1)
    output = _Output(sink)
    async with host.running():
        connection = StreamConnection(host, output.write)
        stopped = _stop_signals()
        reading = asyncio.ensure_future(_read(source, host.limits.max_body_bytes, connection, output))
        await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        await connection.close(within=min(host.limits.drain_timeout, _PATIENCE))
        await output.close()


async def _read(source: BinaryIO, limit: int, connection: StreamConnection, output: _Output) -> None:
    async for line in _lines(source, limit):
        if line is None:
            message = f"A message has {limit} bytes at most."
            await output.write(jsonrpc.failure(None, -32600, message))
        elif line.strip():
            connection.receive(line)


async def _lines(source: BinaryIO, limit: int) -> AsyncIterator[bytes | None]:
    """The lines of a stream; `None` stands for one that is longer than the limit, which is skipped."""
    buffer = bytearray()
    skipping = False
    async for chunk in _chunks(source):
        *lines, rest = (bytes(buffer) + chunk).split(b"\n")
        for line in lines:
            if skipping or len(line) > limit:
                skipping = False
                yield None
            else:
                yield line
        buffer[:] = rest
        if len(buffer) > limit:
            skipping = True
            buffer.clear()
    if buffer and not skipping:
        yield bytes(buffer)


async def _chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK)
    try:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    except (ValueError, OSError, NotImplementedError):  # a file, or a platform without readable pipes
        while chunk := await loop.run_in_executor(None, source.read, _CHUNK):
            yield chunk
        return
    try:
        while chunk := await reader.read(_CHUNK):
            yield chunk
    finally:
        transport.close()


class _Output:
    """The standard output, one frame at a time."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._lock = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._blocking = False
        self._gone = False

    async def write(self, frame: bytes) -> None:
        """Write one frame; a client that is gone gets nothing."""
        async with self._lock:
            if self._gone:
                return
            try:
                if self._writer is None and not self._blocking:
                    await self._open()
                if self._writer is not None:
                    self._writer.write(frame + b"\n")
                    await self._writer.drain()
                else:
                    await asyncio.get_running_loop().run_in_executor(None, self._sink.write, frame + b"\n")
            except (BrokenPipeError, ConnectionError):
                self._gone = True

    async def close(self) -> None:
        """Flush what was written, unless the client does not take it."""
        try:
            async with asyncio.timeout(_PATIENCE), self._lock:
                if self._writer is None:
                    self._sink.close()
                else:
                    self._writer.close()
                    await self._writer.wait_closed()
        except (TimeoutError, BrokenPipeError, ConnectionError):
            if self._writer is not None:
                self._writer.transport.abort()

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.connect_write_pipe(_Flow, self._sink)
        except (ValueError, OSError, NotImplementedError):
            self._blocking = True
            return
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)


class _Flow(asyncio.streams.FlowControlMixin):
    """Tells a writer when its pipe is full, and when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._closed.done():
            self._closed.set_result(None)

    def _get_close_waiter(self, stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        return self._closed


def _stop_signals() -> asyncio.Future[None]:
    """A future that is done when the process is asked to end."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)
        except (
            NotImplementedError,
            RuntimeError,
            ValueError,
        ):  # not the main thread, or no such signals here
            return stopped
    return stopped
