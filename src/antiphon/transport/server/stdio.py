"""Serves one client on standard input and output: one frame per line.

Owns the two streams. The output of an author's `print` goes to standard error, because standard output may
carry only frames.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

from antiphon.runtime.engine import Engine
from antiphon.runtime.limits import Limits
from antiphon.transport.server.stream_connection import StreamConnection
from antiphon.wire import jsonrpc

__all__ = ["serve", "serve_streams"]

READ_BYTES = 64 * 1024
"""The size of one read from standard input."""
_MAX_UNREAD_BYTES = 16 * 1024 * 1024
"""How much output may wait for a client that does not read, before the server stops reading its input."""
_DRAIN_SECONDS = 5.0
"""How long running calls may take to finish after the client closed standard input."""
FLUSH_SECONDS = 5.0
"""How long the client may take to read the remaining output before it is discarded."""


async def serve(engine: Engine) -> None:
    """Serve until the client closes standard input, or until SIGINT or SIGTERM."""
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    sink = os.fdopen(os.dup(1), "wb", buffering=0)
    sys.stdout.flush()
    os.dup2(2, 1)
    async with engine.running():
        await serve_streams(engine, source, sink, stop_signal())


async def serve_streams(
    engine: Engine, source: BinaryIO, sink: BinaryIO, stopped: asyncio.Future[None]
) -> None:
    """Serve a client on two streams until it closes its own, or until `stopped` is done."""
    output = Output(sink)
    connection = StreamConnection(engine, output.write, transport="pipe")
    reading = asyncio.ensure_future(read_messages(source, engine.limits, connection, output))
    await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    await connection.close(within=min(engine.begin_drain(), _DRAIN_SECONDS))
    await output.close()


async def read_messages(
    source: BinaryIO, limits: Limits, connection: StreamConnection, output: Output
) -> None:
    limit, most = limits.max_body_bytes, 2 * limits.max_calls
    async for line in read_lines(source, limit):
        if line is None:
            message = f"The message is too large: this server accepts at most {limit} bytes."
            await output.write(jsonrpc.failure(None, -32600, message))
        elif line.strip():
            connection.receive(line)
        if connection.unfinished > most or output.backlog > _MAX_UNREAD_BYTES:
            # The client sends without reading. Its next message has to wait until it has read.
            await output.flush()


async def read_lines(source: BinaryIO, limit: int) -> AsyncIterator[bytes | None]:
    """Yield the lines of a stream, and `None` for each line that is longer than the limit."""
    buffer = bytearray()
    skipping = False
    async for chunk in _chunks(source):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if not skipping:
                buffer += chunk[start:end]
            yield None if skipping or len(buffer) > limit else bytes(buffer)
            buffer.clear()
            skipping, start = False, end + 1
        if not skipping:
            buffer += chunk[start:]
            if len(buffer) > limit:
                skipping = True
                buffer.clear()
    if buffer and not skipping:
        yield bytes(buffer)


async def _chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the bytes of a stream as they arrive; in a thread if the event loop cannot watch the stream."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_BYTES)
    try:
        if _is_unwatchable(source):
            raise ValueError("The event loop cannot watch this device.")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    except (ValueError, OSError, NotImplementedError):  # a file, or a platform without readable pipes
        while chunk := await loop.run_in_executor(None, source.read, READ_BYTES):
            yield chunk
        return
    try:
        while chunk := await reader.read(READ_BYTES):
            yield chunk
    finally:
        transport.close()


def _is_unwatchable(source: BinaryIO) -> bool:
    """Return whether a stream is a device such as `/dev/null`, which epoll refuses.

    asyncio accepts every device, and reports the refusal to its log only: the end would never be noticed.
    """
    return stat.S_ISCHR(os.fstat(source.fileno()).st_mode) and not source.isatty()


class Output:
    """Standard output, one frame at a time."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._lock = asyncio.Lock()
        self.backlog = 0
        """How many bytes wait to be written."""
        self._writer: asyncio.StreamWriter | None = None
        self._uses_thread = False
        self.is_closed = False

    async def write(self, frame: bytes) -> None:
        """Write one frame; discard it if the client has closed the stream."""
        self.backlog += len(frame)
        try:
            async with self._lock:
                await self._put(frame + b"\n")
        except (BrokenPipeError, ConnectionError):
            self.is_closed = True
        finally:
            self.backlog -= len(frame)

    async def _put(self, line: bytes) -> None:
        if self.is_closed:
            return
        if self._writer is None and not self._uses_thread:
            await self._open()
        if self._writer is not None:
            self._writer.write(line)
            await self._writer.drain()
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._sink.write, line)

    async def flush(self) -> None:
        """Wait until everything that waits now is written."""
        await asyncio.sleep(0)  # frames that were received just now are answered first
        async with self._lock:
            pass

    async def close(self) -> None:
        """Flush the output; discard it if the client does not read it in time."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS), self._lock:
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
            transport, protocol = await loop.connect_write_pipe(_FlowControl, self._sink)
        except (ValueError, OSError, NotImplementedError):
            self._uses_thread = True
            return
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)


class _FlowControl(asyncio.streams.FlowControlMixin):
    """Notifies a `StreamWriter` when its pipe is full or closed."""

    def __init__(self) -> None:
        super().__init__()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._closed.done():
            self._closed.set_result(None)

    def _get_close_waiter(self, stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        return self._closed


def stop_signal() -> asyncio.Future[None]:
    """Return a future that is done on SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)
        except (NotImplementedError, RuntimeError, ValueError):
            # The platform has no such signals, or this is not the main thread.
            return stopped
    return stopped
