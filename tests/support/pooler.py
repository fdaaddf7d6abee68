"""Connection poolers in front of PostgreSQL: PgBouncer, and a stand-in for machines without it.

The stand-in does what matters to a client of PgBouncer: it refuses parameters of a connection that it does
not know, it announces a process number of its own, and in transaction mode it gives the connection of
PostgreSQL that was used last to the next transaction, no matter whose.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.polling import DEADLINE, until
from tests.support.postgres import Postgres
from tests.support.process import free_port

PGBOUNCER = shutil.which("pgbouncer", path="/usr/local/bin:/usr/bin:/usr/sbin:/sbin") or shutil.which(
    "pgbouncer"
)
_KNOWN = {"user", "database", "client_encoding", "datestyle", "timezone", "application_name"}
_TLS_REQUEST = 80877103
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a message: its type and its content."""
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


def _packed(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


class Pooler:
    """The stand-in, which shares connections between the transactions of all clients if `shares` is true."""

    def __init__(self, port: int, *, shares: bool) -> None:
        self.port = 0
        self._backend_port = port
        self._shares = shares
        self._idle: list[Streams] = []
        self._greeting = b""
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client in a task that `close` can cancel."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for _, writer in self._idle:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            startup = await self._startup(reader, writer)
            words = [word.decode() for word in startup[4:].split(b"\0") if word]
            unknown = [name for name in words[::2] if name.lower() not in _KNOWN]
            if unknown:
                text = f"unsupported startup parameter: {unknown[0]}"
                fields = b"SFATAL\0C08P01\0M" + text.encode() + b"\0\0"
                writer.write(_packed(b"E", fields))
                await writer.drain()
                return
            backend: Streams | None = await self._take(startup)
            key = _packed(b"K", secrets.token_bytes(8))
            writer.write(_packed(b"R", b"\0\0\0\0") + self._greeting + key + _packed(b"Z", b"I"))
            if self._shares:
                await self._share(reader, writer, startup, backend)
            else:
                await self._join(reader, writer, backend)

    async def _startup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        while True:
            length = struct.unpack("!I", await reader.readexactly(4))[0]
            content = await reader.readexactly(length - 4)
            if struct.unpack("!I", content[:4])[0] != _TLS_REQUEST:
                return content
            writer.write(b"N")

    async def _take(self, startup: bytes) -> Streams:
        """Return the connection of PostgreSQL that was used last, or a new one."""
        if self._idle:
            return self._idle.pop()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._backend_port)
        writer.write(struct.pack("!I", len(startup) + 4) + startup)
        self._greeting = b""
        while True:
            kind, content = await _message(reader)
            if kind == b"S":
                self._greeting += _packed(kind, content)
            if kind == b"Z":
                return reader, writer

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, backend: Streams
    ) -> None:
        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    target.write(data)
            target.close()

        try:
            await asyncio.gather(copy(reader, backend[1]), copy(backend[0], writer))
        finally:
            backend[1].close()

    async def _share(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, startup: bytes, first: Streams
    ) -> None:
        self._idle.append(first)
        transaction: _Transaction | None = None
        try:
            while True:
                kind, content = await _message(reader)
                if kind == b"X":
                    return
                if transaction is None or transaction.task.done():
                    transaction = _Transaction(await self._take(startup), writer, self._idle)
                transaction.send(kind, content)
        finally:
            if transaction is not None and not transaction.task.done():
                transaction.task.cancel()
                transaction.backend[1].close()


class _Transaction:
    """A transaction on a connection of PostgreSQL, which is idle again after it."""

    def __init__(self, backend: Streams, client: asyncio.StreamWriter, idle: list[Streams]) -> None:
        self.backend = backend
        self._client = client
        self._idle = idle
        self._pending = 0
        self.task = asyncio.create_task(self._forward())

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a message to PostgreSQL."""
        self._pending += kind in (b"Q", b"S")
        self.backend[1].write(_packed(kind, content))

    async def _forward(self) -> None:
        """Forward the answers to the client, until the transaction has ended."""
        while True:
            kind, content = await _message(self.backend[0])
            if kind == b"Z":
                self._pending -= 1
                if not self._pending and content == b"I":
                    self._idle.append(self.backend)
                    self._client.write(_packed(kind, content))
                    return
            self._client.write(_packed(kind, content))


@asynccontextmanager
async def stand_in(database: Postgres, *, shares: bool) -> AsyncIterator[int]:
    """Run the stand-in, and give its port."""
    pooler = Pooler(database.port, shares=shares)
    server = await asyncio.start_server(pooler.accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await pooler.close()
        await server.wait_closed()


@asynccontextmanager
async def pgbouncer(database: Postgres, *, shares: bool) -> AsyncIterator[int]:
    """Run PgBouncer, and give its port."""
    assert PGBOUNCER is not None
    folder = Path(tempfile.mkdtemp(prefix="antiphon-pgbouncer-"))
    folder.chmod(0o755)
    port = free_port()
    (folder / "users.txt").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={database.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder / 'users.txt'}\n"
        f"pool_mode = {'transaction' if shares else 'session'}\n"
    )
    process = subprocess.Popen(
        [PGBOUNCER, "-q", str(folder / "pgbouncer.ini")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=database.user,
        cwd="/",
    )
    try:
        await until(lambda: _accepts(port))
        yield port
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        shutil.rmtree(folder, ignore_errors=True)


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), DEADLINE):
        return True
    return False
