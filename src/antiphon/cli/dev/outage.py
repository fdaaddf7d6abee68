"""Answers requests while there is no server: status 503, and why the file cannot be served."""

from __future__ import annotations

import asyncio
import socket

import msgspec

__all__ = ["Outage"]

HEAD_SECONDS = 10.0
"""How long a request may take to arrive."""
_MAX_HEAD_BYTES = 64 * 1024
_CODE = -32000


class Outage:
    """Answers on a listening socket between `begin` and `end`. The socket itself stays open."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._server: asyncio.Server | None = None
        self._reason = ""

    async def begin(self, reason: str) -> None:
        """Answer all requests with a reason from now on."""
        self._reason = reason
        if self._server is None:
            self._server = await asyncio.start_server(
                self._answer, sock=self._listening.dup(), limit=_MAX_HEAD_BYTES
            )

    async def end(self) -> None:
        """Leave new requests to the server that starts."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        error = {"code": _CODE, "message": self._reason}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
        head = (
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head.encode() + body)
                await writer.drain()
                writer.write_eof()
                while await reader.read(_MAX_HEAD_BYTES):  # unread bytes would reset the connection
                    pass
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # the caller has gone, or sends something else than a request
        finally:
            writer.close()
