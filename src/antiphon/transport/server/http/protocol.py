"""The HTTP protocol of a connection: uvicorn's, with bounds for the time before an app sees a request.

Owns the bound and the deadline of a request's head, and the refusals that no app can send. uvicorn parses
requests and writes responses. Knows nothing about MCP but the shape of an error.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from antiphon.transport.server.http.unread import drop
from antiphon.wire import jsonrpc

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from antiphon.transport.server.http.serve import HttpConfig

__all__ = ["HttpProtocol"]

LINGER_SECONDS = 2.0
"""How long a refused connection discards what its client still sends, so that the client sees the refusal."""
MAX_PIPELINED = 16
"""How many requests may wait for the response to the one before."""
RETRY_SECONDS = 1


class _NoTrailers(list[tuple[bytes, bytes]]):
    """A list of headers that takes none."""

    def append(self, item: tuple[bytes, bytes]) -> None:
        """Refuse a header."""
        raise ValueError("Trailers are not supported.")


_NO_TRAILERS = _NoTrailers()
_VERSIONS = ("1.1", "1.0")


class HttpProtocol(HttpToolsProtocol):
    """One connection. It is in `Connections.deadlines` while a request's head is awaited."""

    def __init__(
        self,
        config: HttpConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.unread_bytes = 0
        self.unread_since = 0.0
        self._connections = config.connections
        self._max_head = config.limits.max_head_bytes
        self._head_timeout = config.limits.head_timeout
        self._room = self._max_head
        """How many bytes of a head may still come."""
        self._awaits_head = True
        self._ignores_data = False
        """Whether the connection is about to end, and what the client still sends is discarded."""
        self._bodiless = 0
        """How many bytes of a request came since the last byte of its body."""
        self._last_body: tuple[bytearray, int] | None = None
        self.scope = {}  # type: ignore[typeddict-item]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it with 503. The deadline of the first head starts now."""
        super().connection_made(transport)
        refusal = self._connections.admit(self, self.client)
        if refusal is None:
            self._connections.deadlines[self] = self.loop.time() + self._head_timeout
        else:
            self._ignores_data = True
            self._write_error(503, refusal)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another connection."""
        self._connections.leave(self)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, piece by piece if there is more than a head may have."""
        if self._ignores_data:
            return
        if len(data) > self._room:
            self._feed_pieces(data)
            return
        before = self.scope
        was_idle = self.timeout_keep_alive_task is not None
        if was_idle:
            self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, "This is not valid HTTP.")
            return
        except httptools.HttpParserUpgrade:
            # The server speaks nothing but HTTP/1.1: it answers the request, and reads no further one.
            self.cycle.keep_alive = False
            self._ignores_data = True
        if len(self.pipeline) > MAX_PIPELINED:
            drop(self.transport)
        scope = self.scope
        if "method" in scope and (scope is not before or not self.cycle.response_complete):
            if self._awaits_head:
                self._awaits_head = False
                self._room = self._max_head
                self._connections.deadlines.pop(self, None)
            if scope is before:
                self._check_body(len(data))
            return
        self._await_head(len(data), before, was_idle=was_idle)

    def on_headers_complete(self) -> None:
        """Start the request. Fields that follow its body are refused: they would be taken for headers."""
        super().on_headers_complete()
        self.headers = _NO_TRAILERS
        if self.scope["http_version"] not in _VERSIONS:
            raise ValueError("This is not HTTP/1.")

    @property
    def idle_until(self) -> float | None:
        """When the connection is closed unless a request comes; `None` while it has a request."""
        timer = self.timeout_keep_alive_task
        return None if timer is None or self._awaits_head else timer.when()

    def expire(self) -> None:
        """Close the connection: the head did not arrive in time, or the refusal was sent long ago."""
        if self._ignores_data:
            drop(self.transport)
        elif self.cycle is not None and not self.cycle.response_complete:
            # The head of a further request waits behind one that runs, and may not even be read meanwhile.
            self._connections.deadlines[self] = self.loop.time() + self._head_timeout
        elif "method" in self.scope or not self.scope:  # nothing of a head has arrived
            self.transport.close()
            self._linger()
        else:
            self._refuse(
                408, f"The head of the request did not arrive within {self._head_timeout:g} seconds."
            )

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self.unread_bytes = 0
        super().resume_writing()

    def _feed_pieces(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self._ignores_data and not self.transport.is_closing():
            end = start + self._room
            self.data_received(data[start:end])
            start = end

    def _check_body(self, size: int) -> None:
        """Bound what comes beside a body: the parser keeps a trailer until it is complete."""
        body = self.cycle.body
        last, self._last_body = self._last_body, (body, len(body)) if self.cycle.more_body else None
        if body and (last is None or last[0] is not body or last[1] != len(body)):
            self._bodiless = 0
            return
        self._bodiless += size
        if self._bodiless > self._max_head and self.cycle.more_body:
            self._refuse(400, "The body of the request is not valid HTTP.")

    def _await_head(self, size: int, before: Any, *, was_idle: bool) -> None:
        """Go on waiting for a head, or start to wait for it, after `size` bytes that did not complete it.

        `before` is the scope before these bytes. The start of a head may share its data with the end of the
        request before: then those bytes do not count. Data that belong to no head, such as the rest of a body
        that was refused, have the same deadline.
        """
        begins = self.scope is not before
        self._last_body = None
        if begins:
            self._room = self._max_head
        if not self._awaits_head or (begins and before):
            self._awaits_head = True
            self._connections.deadlines[self] = self.loop.time() + self._head_timeout
        if "method" in self.scope:
            return
        if begins and not ((was_idle or not before) and (self.cycle is None or self.cycle.scope is before)):
            return
        self._room -= size
        if self._room <= 0:
            self._refuse(431, f"The head of a request has at most {self._max_head} bytes.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer with an error, and close the connection once its client had the time to read it."""
        if self.transport.is_closing():
            return
        self._ignores_data = True
        self._connections.log("Refused an HTTP request with %d. %s", status, message)
        if self.cycle is not None and not self.cycle.response_complete:
            if self.pipeline or self.cycle.response_started:
                drop(self.transport)  # an error amid another response would be taken for its body
                return
            self.cycle.disconnected = True  # the app must not answer too
            self.cycle.message_event.set()
        self._write_error(status, message)
        self._linger()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._ignores_data = True
        self._connections.deadlines[self] = self.loop.time() + LINGER_SECONDS

    def _write_error(self, status: int, message: str) -> None:
        body = jsonrpc.failure(None, -32600 if status < 500 else -32603, message)
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            lines.append(f"retry-after: {RETRY_SECONDS}")
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
