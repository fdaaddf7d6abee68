"""One connection to an HTTP server: sends a request, and reads the response with httptools.

A connection carries one request at a time, and serves the next one only if both sides are done with the last.
What a server sends unasked closes it. It knows no pool: its owner hears when it is free, and when it is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from antiphon.printable import printable
from antiphon.transport.client.http_client import ConnectionClosed, HttpFailure
from antiphon.transport.client.http_connecting import os_reason

__all__ = ["Connection", "Response"]

_MAX_FIELD_BYTES = 16 * 1024
"""How long the name and the value of a header may be."""
_MAX_HEADERS = 128
_MAX_HEAD_BYTES = 512 * 1024
"""How much may come without a byte of the body: headers with interim responses, trailers."""
MAX_BUFFERED_BYTES = 256 * 1024
"""How much of a body is kept before the connection waits for a reader, and how large a small request is."""


class Response:
    """A response, whose body is read while it comes."""

    __slots__ = ("_connection", "_waiter", "failure", "headers", "is_complete", "pieces", "size", "status")

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.is_complete = False
        self.failure: HttpFailure | None = None
        self.size = 0
        """How many bytes of the body wait for a reader."""
        self._connection: Connection | None = connection
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: str) -> str | None:
        """Return the first value of a header, and all challenges; `None` without one."""
        return self.headers.get(name.lower())

    async def read(self) -> bytes:
        """Return the bytes that have come; empty at the end of the body. Raises `HttpFailure`."""
        while not self.pieces:
            if self.is_complete:
                return b""
            if self.failure is not None:
                raise self.failure
            await self.wait()
        pieces, self.pieces, self.size = self.pieces, [], 0
        if self._connection is not None:
            self._connection.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def close(self) -> None:
        """Free the connection if the body has come to its end, and close it if not."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.finish(self)

    # For the connection

    async def wait(self) -> None:
        """Wait until something has come, or nothing will. Raises nothing."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def wake(self) -> None:
        """Wake the reader."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def add_header(self, name: str, value: str) -> None:
        """Add a header. Several challenges or cookies are one value."""
        found = self.headers.get(name)
        if found is None:
            self.headers[name] = value
        elif name == "www-authenticate":
            self.headers[name] = f"{found}, {value}"
        elif name == "set-cookie":
            self.headers[name] = f"{found}\n{value}"

    def add(self, piece: bytes) -> None:
        """Add bytes of the body."""
        self.pieces.append(piece)
        self.size += len(piece)

    def clear_headers(self) -> None:
        """Forget the headers of an interim response."""
        self.headers.clear()


class Connection(asyncio.Protocol):
    """A connection. `on_free` is called when it can carry the next request, `on_lost` when it is closed."""

    def __init__(self, on_free: Callable[[Connection], None], on_lost: Callable[[Connection], None]) -> None:
        self.idle_since = 0.0
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.response: Response | None = None
        self._is_paused = False
        self._is_aborted = False
        self._begin()

    def _begin(self) -> None:
        self._problem = ""  # why the bytes that came are no response
        self._has_begun = False  # whether anything of the response has come
        self._has_head = False
        self._bytes_without_body = 0
        self._headers = 0
        self._is_large = False  # whether the request may be on its way when a response comes
        self._is_interim = False
        self._ends_with_connection = False
        self._is_reusable = True

    async def send(self, request: bytes, body: bytes | None) -> Response:
        """Send a request and return its response once the head is there. Raises `HttpFailure`.

        If the caller is cancelled meanwhile, the connection is closed.
        """
        assert self._transport is not None
        assert self.response is None
        self._begin()
        response = self.response = Response(self)
        # One write for a small body: it is one packet then.
        if body is not None and len(body) > MAX_BUFFERED_BYTES:
            self._is_large = True
            self._transport.write(request)
            self._transport.write(body)
        else:
            self._transport.write(request + body if body else request)
        try:
            while not self._has_head:
                if response.failure is not None:
                    raise response.failure
                await response.wait()
        except BaseException:
            self.abort()
            raise
        return response

    def is_usable(self) -> bool:
        """Return whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def resume(self) -> None:
        """Read on, after the body was read."""
        if self._is_paused:
            self._is_paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    def finish(self, response: Response) -> None:
        """Free the connection after a response, if nothing is left of it."""
        if self.response is not response:
            return
        self.response = None
        is_sent = self._transport is not None and not self._transport.get_write_buffer_size()
        if self._is_large and response.status >= 400:
            is_sent = (
                False  # it may be refused before all of it is sent, and with TLS the buffer does not tell
            )
        if response.is_complete and self._is_reusable and is_sent and not self._is_paused:
            self._on_free(self)
            return
        if not response.is_complete and response.failure is None:
            response.failure = HttpFailure("the response was closed")
            response.wake()
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self.response
        if response is None or response.is_complete:  # nobody has asked for this
            self._is_reusable = False
            self.abort()
            return
        self._has_begun = True
        self._bytes_without_body += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._problem = "it changes to another protocol"
        except httptools.HttpParserError as error:
            self._problem = self._problem or printable(str(error), 200) or type(error).__name__
        if self._bytes_without_body > _MAX_HEAD_BYTES and not response.is_complete:
            self._problem = self._problem or "its headers are too long"
        if self._problem:
            self._fail(HttpFailure(f"the response is not valid HTTP: {self._problem}"))
            return
        if response.size > MAX_BUFFERED_BYTES and not response.is_complete and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        if self._has_head:
            response.wake()

    def eof_received(self) -> None:
        # Some servers respond and close before a request is sent whole: a transport waits for the rest.
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        self._transport = None
        self._on_lost(self)

    def _end(self, error: Exception | None) -> None:
        """End the response: nothing comes any more."""
        self._is_reusable = False
        response = self.response
        if response is None or response.is_complete or response.failure is not None:
            return
        if self._has_head and self._ends_with_connection and error is None and not self._is_aborted:
            response.is_complete = True
            response.wake()
            self.abort()
        elif self._has_head:
            self._fail(HttpFailure("the connection broke in the middle of the response"))
        elif self._has_begun:
            self._fail(HttpFailure("the server closed the connection in the middle of the headers"))
        elif isinstance(error, OSError) and not isinstance(error, ConnectionResetError | BrokenPipeError):
            self._fail(HttpFailure(os_reason(error)))
        else:
            self._fail(ConnectionClosed("the server closed the connection before it answered"))

    def _fail(self, failure: HttpFailure) -> None:
        response = self.response
        if response is not None and response.failure is None:
            response.failure = failure
            response.wake()
        self._is_reusable = False
        self.abort()

    def _refuse(self, problem: str) -> ValueError:
        """Note what is wrong with the response, and return an error that stops the parser."""
        self._problem = problem
        return ValueError(problem)

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.response is None or self.response.is_complete:
            self._is_reusable = False  # a second response, which nobody has asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        response = self.response
        self._headers += 1
        if self._headers > _MAX_HEADERS or len(name) + len(value) > _MAX_FIELD_BYTES:
            raise self._refuse("its headers are too long")
        if response is not None and not self._has_head:  # what comes later is a trailer
            response.add_header(name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        response = self.response
        if response is None or self._has_head:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._is_interim = True
            response.clear_headers()
            return
        response.status = status
        self._has_head = True
        self._ends_with_connection = (
            response.header("content-length") is None and response.header("transfer-encoding") is None
        )

    def on_body(self, piece: bytes) -> None:
        if self._is_interim:
            raise self._refuse("an interim response has a body")
        self._bytes_without_body = 0
        if self.response is not None and not self.response.is_complete:
            self.response.add(piece)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
        elif self.response is not None and not self.response.is_complete:
            self.response.is_complete = True
            self._is_reusable = self._is_reusable and self._parser.should_keep_alive()
