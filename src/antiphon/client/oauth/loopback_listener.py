"""Waits on a loopback port for the browser that an authorization server sends back.

It reads one small request at a time and answers each with a fixed page. It trusts no request: the caller
checks the state.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from antiphon.errors import AuthorizationFailed

__all__ = ["CALLBACK_PATH", "LoopbackListener"]

CALLBACK_PATH = "/callback"
_MAX_HEAD_BYTES = 32 * 1024
_HEAD_SECONDS = 10.0
_MAX_CONNECTIONS = 64
_MAX_WAITING = 16
"""How many requests wait to be looked at. More are refused."""


class LoopbackListener:
    """A listener on a port of 127.0.0.1, open inside `async with`.

    The port 0 chooses a free one. `or_another` does so too if the port is not free.
    """

    def __init__(self, port: int = 0, *, or_another: bool = False) -> None:
        self._wanted = port
        self._or_another = or_another
        self._server: asyncio.Server | None = None
        self._came: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING)
        self._open = 0

    async def __aenter__(self) -> Self:
        try:
            self._server = await self._listen(self._wanted)
        except OSError as error:
            if not self._or_another:
                raise AuthorizationFailed(
                    f"Cannot listen on port {self._wanted} of 127.0.0.1 for the browser: {error.strerror}."
                ) from None
            self._server = await self._listen(0)
        return self

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_MAX_HEAD_BYTES)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def redirect_uri(self) -> str:
        """The address that the browser has to be sent back to."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"

    async def next_url(self) -> str:
        """Wait for a browser, and return the URL that it was sent back to."""
        return await self._came.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > _MAX_CONNECTIONS:
                return
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._take(head)
                writer.write(_page(status, text))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, head: bytes) -> tuple[str, str]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        target = words[1].decode("ascii", "replace") if len(words) == 3 else ""
        if words[0] != b"GET" or target.partition("?")[0] != CALLBACK_PATH:
            return "404 Not Found", "There is nothing here."
        try:
            self._came.put_nowait(target)
        except asyncio.QueueFull:
            return "503 Service Unavailable", "Too many requests."
        return "200 OK", "You can close this window and go back to the program."


def _page(status: str, text: str) -> bytes:
    content = f"<!doctype html><meta charset=utf-8><title>Login</title><p>{text}</p>\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
