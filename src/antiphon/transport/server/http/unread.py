"""Answers that a client may not read: written in pieces, so that the server waits for the client.

Owns the size of the pieces, and the way from an ASGI app to its connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None  # type: ignore[assignment]

from antiphon.transport.server.http.asgi import Receive, Send

__all__ = ["SMALL_BYTES", "ReadingWatch", "abort", "count_unread", "drop", "pieces", "send_body"]

_RESET = struct.pack("ii", 1, 0)
"""The option that makes `close` reset a connection: linger, for 0 seconds."""
SMALL_BYTES = 32 * 1024
"""How large an answer may be to be written at once: it fits into the buffer of a socket."""
PIECE_BYTES = 1024 * 1024
"""How much of a larger answer is written at once. Smaller pieces would slow down clients that read."""
LOOK_SECONDS = 0.1
"""How often the server looks whether a client reads the response that is being sent."""
CLOSE_SECONDS = 1.0
"""How long an app waits for the notice that its connection is closed."""


def pieces(body: bytes, *, more_body: bool = False) -> Iterator[tuple[bytes, bool]]:
    """Yield a body in pieces, each with whether more pieces of the response follow.

    An ASGI server takes a piece once the client has read most of the pieces before. So a response that is
    not small ends with an empty piece, which is taken when little is left in the connection's buffer.
    """
    if len(body) <= SMALL_BYTES:
        yield body, more_body
        return
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES], True
    if not more_body:
        yield b"", False


def count_unread(transport: Any) -> int:
    """Return how many bytes of a connection's answers its client has not received.

    The kernel keeps megabytes for a slow client. Without them, such a client would seem to read nothing.
    """
    size = int(transport.get_write_buffer_size())
    sock = transport.get_extra_info("socket")
    if sock is None or fcntl is None:
        return size
    try:
        queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, ValueError):  # the socket is closed, or the system does not tell
        return size
    return size + int(struct.unpack("i", queued)[0])


def drop(transport: Any) -> None:
    """Close a connection at once, with everything that its client has not read.

    A transport that is closed waits for its client. One that is aborted leaves what the kernel has queued,
    which the kernel keeps until the client reads it. So the connection is also reset.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        try:
            # The sockets of uvloop have no options: another descriptor of the same socket has them.
            with socket.socket(fileno=os.dup(sock.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:  # no descriptor is left, or the client has closed the connection
            pass
    transport.abort()


def _find_transport(receive: Receive) -> Any | None:
    """Return the transport behind an ASGI `receive`, or `None` if the ASGI server does not show it.

    ASGI has no message to drop a connection, or to ask whether a client reads. uvicorn's `receive` is the
    method of an object that has the transport. Middleware seldom wraps it.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    return transport if hasattr(transport, "abort") else None


class ReadingWatch:
    """Notices that the client of a request reads nothing for `timeout` seconds."""

    __slots__ = ("_since", "_size", "_timeout", "_transport")

    def __init__(self, receive: Receive, timeout: float) -> None:
        self._transport = _find_transport(receive)
        self._timeout = timeout
        self._size: int | None = None
        """How many bytes were unread at the last look; `None` before the first look."""
        self._since = 0.0

    def is_stalled(self, now: float, written: float) -> bool:
        """Return whether the client has read nothing for too long; `written` is the time of the last write.

        Call it often while an answer is being sent. A client reads if less is unread than at the last call,
        or if something was written since.
        """
        size = 0 if self._transport is None else count_unread(self._transport)
        if self._size is None or size < self._size or written > self._since:
            self._since = now
        self._size = size
        return now - self._since >= self._timeout


async def send_body(send: Send, receive: Receive, body: bytes, timeout: float) -> None:
    """Send the body of a response; drop the connection if the client reads nothing for `timeout` seconds."""
    loop = asyncio.get_running_loop()
    watch = ReadingWatch(receive, timeout)
    written = loop.time()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if watch.is_stalled(loop.time(), written):
            limit.reschedule(loop.time())
        timer = loop.call_later(LOOK_SECONDS, look)

    timer = loop.call_later(LOOK_SECONDS, look)
    try:
        async with asyncio.timeout(None) as limit:
            for piece, more in pieces(body):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
                written = loop.time()
    except TimeoutError:
        await abort(receive)
    finally:
        timer.cancel()


async def abort(receive: Receive) -> None:
    """Drop the connection of a request, with everything that its client has not read.

    A server that closes a connection waits until the client has read everything. Under an ASGI server that
    does not show the transport, the app can only end its response early.
    """
    transport = _find_transport(receive)
    if transport is None:
        return
    drop(transport)
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        pass
