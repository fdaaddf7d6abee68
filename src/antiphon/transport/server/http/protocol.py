"""The HTTP protocol of a connection: uvicorn's, with bounds for the time before an app sees a request.

Owns the bound and the deadline of a request's head, the refusals that no app can send, and the short way of
plain requests to the endpoint. For all other requests, uvicorn builds what an ASGI app needs, and writes the
responses. Knows nothing about MCP but the shape of an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from antiphon.transport.server.http.asgi import Scope
from antiphon.transport.server.http.connections import stranger_at
from antiphon.transport.server.http.headers import NO_TRAILERS
from antiphon.transport.server.http.known_heads import ConnectionHeads, KnownHeaders
from antiphon.transport.server.http.plain_exchange import PlainExchange
from antiphon.transport.server.http.request_body import LATE_BODY
from antiphon.transport.server.http.responses import Responses
from antiphon.transport.server.http.unread import drop

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from antiphon.transport.server.http.serve import HttpConfig

__all__ = ["HttpProtocol"]

LINGER_SECONDS = 2.0
"""How long a refused connection discards what its client still sends, so that the client sees the refusal."""
LAST_REQUEST_SECONDS = 0.1
"""How long an idle connection takes a last request when the server ends: one may be on its way."""
MAX_PIPELINED = 16
"""How many requests may wait for the response to the one before."""
_MAX_LENGTH_DIGITS = 4
"""How long the content length of a plain request may be."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. It is in `Connections.deadlines` while a request's head is awaited.

    A plain request goes to the endpoint of the app at once (see `PlainExchange`): a POST with a small body,
    which is alone on the connection. All other requests go through uvicorn's ASGI cycle.
    """

    # Python shares the keys of up to 30 attributes between objects. With more, each has 1.6 kB of its own.
    __slots__ = (
        "_authenticates",
        "_awaits_head",
        "_batch",
        "_bodiless",
        "_connections",
        "_cycle_number",
        "_endpoint",
        "_has_head",
        "_heads",
        "_ignores_data",
        "_is_between",
        "_is_ending",
        "_is_lost",
        "_is_whole",
        "_known_heads",
        "_last_body",
        "_max_plain_body",
        "_plain_body",
        "_plain_headers",
        "_plain_scopes",
        "_requests",
        "_responses",
        "_room",
        "idle_until",
        "limits",
        "plain",
        "stranger",
        "unread_bytes",
        "unread_since",
    )

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
        self.limits = config.limits
        self._room = config.limits.max_head_bytes
        """How many bytes of a head may still come."""
        self._awaits_head = True
        self.idle_until: float | None = None
        self._ignores_data = False
        """Whether the connection is about to end, and what the client still sends is discarded."""
        self._is_lost = self._is_ending = False
        self._bodiless = 0
        """How many bytes of a request came since the last byte of its body."""
        self._last_body: tuple[bytearray, int] | None = None
        self._requests = 0
        """How many requests have begun."""
        self._has_head = False
        """Whether the head of the last one is complete."""
        self._cycle_number = 0
        """Which request has the last ASGI cycle."""
        self._endpoint = config.plain_endpoint
        self._authenticates = self._endpoint is not None and self._endpoint.authenticates
        self._max_plain_body = 0 if self._endpoint is None else self._endpoint.small_body
        self._plain_scopes: Mapping[bytes, Scope] = {}
        """What the endpoint has to know of the connection, by the path in a plain request."""
        self._known_heads = config.known_heads
        self._batch = config.batched_start
        self._responses = config.responses
        self._is_between = True
        """Whether all data so far were whole plain requests, so that the next data begin another request."""
        self._plain_headers: Mapping[bytes, bytes] | None = None
        """The headers of the plain request that is being read."""
        self._plain_body = b""
        self._is_whole = False
        """Whether all of the plain request has arrived."""
        self.plain: PlainExchange | None = None
        """The plain request that is being served, until it has an ASGI cycle."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it with 503. The deadline of the first head starts now."""
        super().connection_made(transport)
        if self._endpoint is not None:
            self._plain_scopes = self._endpoint.plain_scopes.of(self.server)
        self.stranger = stranger_at(self.client)
        self._heads = ConnectionHeads(self._known_heads, self.stranger.share)
        refusal = self._connections.admit(self, self.client)
        if refusal is None:
            self._connections.deadlines[self] = self.loop.time() + self.limits.head_timeout
        else:
            self._ignores_data = True
            transport.write(Responses.refusal(self.server_state.default_headers, 503, refusal))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another connection."""
        self._is_lost = True
        self._connections.leave(self)
        self.plain = None
        self._forget_plain()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, piece by piece if there is more than a head may have."""
        if self._ignores_data:
            return
        if len(data) > self._room:
            self._feed_pieces(data)
            return
        if self.plain is not None:
            self.open_cycle(self.plain)  # another request follows, which waits for this one
        before = self._requests
        idle_until, self.idle_until = self.idle_until, None
        is_start = self._is_between and self._heads.is_useful and not self._has_cycle
        self._is_between = False
        if is_start and self._take_known(data):
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, "This is not valid HTTP.")
            return
        except httptools.HttpParserUpgrade:
            # The server speaks nothing but HTTP/1.1: it answers the request, and reads no further one.
            self.cycle.keep_alive = False
            self._ignores_data = True
        if self._plain_headers is not None:
            if is_start and self._is_whole:
                headers, body = self._plain_headers, self._plain_body
                self._heads.keep(data, self.url, headers, body, share=not self._authenticates)
            self._take_plain(self._plain_headers)
            return
        if len(self.pipeline) > MAX_PIPELINED:
            drop(self.transport)
        if self._has_head and (self._requests != before or self._has_cycle):
            self._stop_awaiting_head()
            if self._requests == before:
                self._check_body(len(data))
            return
        self._await_head(len(data), before, was_idle=idle_until is not None)

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        if self._plain_headers is not None:
            self._leave_short_way()  # another request follows at once
        self.url = b""
        self.headers = []
        self._requests += 1
        self._has_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Decide which way a request goes. Fields that follow its body are refused: they would be headers."""
        self._has_head = True
        if self.url in self._plain_scopes and not self._has_cycle and self._is_plain():
            return
        url, lines = self.url, self.headers
        super().on_message_begin()
        self.url = url
        self.headers += lines
        self.expect_100_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in lines
        )
        self._cycle_number = self._requests
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and not self._is_ending
        self.headers = NO_TRAILERS
        if self.scope["http_version"] not in ("1.1", "1.0"):
            raise ValueError("This is not HTTP/1.")

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        if self._plain_headers is None:
            super().on_body(body)
        elif self._plain_body:
            self._plain_body += body
        else:
            self._plain_body = body

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        if self._plain_headers is None:
            super().on_message_complete()
        else:
            self._is_whole = True

    # Plain requests

    def _is_plain(self) -> bool:
        """Return whether a request to the endpoint is a plain one, whose body is read next."""
        headers, parser = KnownHeaders(self.headers), self.parser
        length = headers.get(b"content-length", b"")
        if (
            len(headers) != len(self.headers)
            or len(headers) > self.limits.max_headers
            or not 0 < len(length) <= _MAX_LENGTH_DIGITS
            or int(length) > self._max_plain_body
            or b"transfer-encoding" in headers
            or b"expect" in headers
            or parser.should_upgrade()
            or not parser.should_keep_alive()
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
        ):
            return False
        self._plain_headers = headers
        self.headers = NO_TRAILERS
        return True

    def _take_known(self, data: bytes) -> bool:
        """Serve a request whose head was parsed before, and return whether the data are such a request."""
        found = self._heads.find(data)
        if found is None or len(found.body) > self._max_plain_body:
            return False
        if self._awaits_head:
            self._stop_awaiting_head()
        self.url, headers, body = found
        self._requests += 1
        self._has_head = True
        if self._authenticates:  # the author's function sees all headers, so the length has to be right
            headers = {**headers, b"content-length": b"%d" % len(body)}
        self._serve_plain(headers, body)
        return True

    def _take_plain(self, headers: Mapping[bytes, bytes]) -> None:
        """Serve a plain request, or wait for the rest of its body."""
        if self._awaits_head:
            self._stop_awaiting_head()
        body, deadlines = self._plain_body, self._connections.deadlines
        if not self._is_whole:
            if self._authenticates:
                self._leave_short_way()  # strangers are refused before their bodies are read
            else:
                deadlines.setdefault(self, self.loop.time() + self.limits.body_timeout)
            return
        deadlines.pop(self, None)
        self._forget_plain()
        self._serve_plain(headers, body)

    def _serve_plain(self, headers: Mapping[bytes, bytes], body: bytes) -> None:
        """Serve a plain request, which has arrived. Nothing else has."""
        assert self._endpoint is not None
        self._is_between = True
        self.plain = exchange = PlainExchange(self, headers)
        scope, loop = self._plain_scopes[self.url], self.loop
        self._batch.add(self._endpoint.answer_plain(exchange, scope, headers, body, loop), loop)

    def _forget_plain(self) -> None:
        self._plain_headers, self._plain_body, self._is_whole = None, b"", False

    def write_answer(self, body: bytes) -> bool:
        """Write the JSON answer of the plain request with its head, and return whether that was possible.

        It is not while the client does not read what was sent to it before.
        """
        if self.flow.write_paused:
            return False
        if self.plain is None or self.transport.is_closing():
            return True
        self.plain = None
        state = self.server_state
        self.transport.write(self._responses.answer(state.default_headers, body))
        state.total_requests += 1
        self.idle_until = self.loop.time() + self.timeout_keep_alive
        if self.access_log:
            client = "" if self.client is None else f"{self.client[0]}:{self.client[1]}"
            self.access_logger.info('%s - "%s %s HTTP/%s" %d', client, "POST", quote(self.url), "1.1", 200)
        return True

    def open_cycle(self, plain: PlainExchange) -> RequestResponseCycle:
        """Create the ASGI cycle of a plain request that is being served: it continues as any other."""
        plain.cycle = cycle = self._create_cycle(plain.headers)
        cycle.more_body, cycle.disconnected = False, self._is_lost
        self.plain = None
        return cycle

    def _leave_short_way(self) -> None:
        """Give a plain request to ASGI, before it is served."""
        assert self._plain_headers is not None
        cycle = self._create_cycle(self._plain_headers)
        cycle.body += self._plain_body
        cycle.more_body = not self._is_whole
        cycle.message_event.set()
        self._forget_plain()
        self._start_asgi_task(cycle, self.app)

    def _create_cycle(self, headers: Mapping[bytes, bytes]) -> RequestResponseCycle:
        """Create the ASGI cycle of the request whose head was read last, which is a plain one."""
        url = self.url
        super().on_message_begin()
        self.url = url
        self.headers += headers.items()
        self.scope |= {"method": "POST", "path": url.decode("ascii"), "raw_path": url, "query_string": b""}
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        self._cycle_number = self._requests
        return self.cycle

    # Deadlines and the end

    def on_response_complete(self) -> None:
        """Start the next request that waits, or wait for one. uvicorn would start a timer each time."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif not self._awaits_head:
            self.idle_until = self.loop.time() + self.timeout_keep_alive

    def shutdown(self) -> None:
        """Close the connection once its request is answered. An idle one takes a last request, by ASGI."""
        if self.plain is not None:
            self.open_cycle(self.plain)
        elif self._plain_headers is not None:
            self._leave_short_way()
        elif not (self._has_cycle or self._is_ending):
            self._is_ending, self._plain_scopes = True, {}
            self._heads.close()
            self.loop.call_later(LAST_REQUEST_SECONDS, self.shutdown)
            return
        super().shutdown()

    @property
    def _has_cycle(self) -> bool:
        """Whether an ASGI cycle has not ended."""
        return self.cycle is not None and not self.cycle.response_complete

    def expire(self) -> None:
        """Close the connection: a request did not arrive in time, or the refusal was sent long ago."""
        if self._ignores_data:
            drop(self.transport)
        elif self._plain_headers is not None:
            self._refuse(408, LATE_BODY)
        elif self._has_cycle:
            # The head of a further request waits behind one that runs, and may not even be read meanwhile.
            self._connections.deadlines[self] = self.loop.time() + self.limits.head_timeout
        elif self._has_head or not self._requests:  # nothing of a head has arrived
            self.transport.close()
            self._linger()
        else:
            self._refuse(
                408, f"The head of the request did not arrive within {self.limits.head_timeout:g} seconds."
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
        if self._bodiless > self.limits.max_head_bytes and self.cycle.more_body:
            self._refuse(400, "The body of the request is not valid HTTP.")

    def _stop_awaiting_head(self) -> None:
        if self._awaits_head:
            self._awaits_head = False
            self._room = self.limits.max_head_bytes
        self._connections.deadlines.pop(self, None)

    def _await_head(self, size: int, before: int, *, was_idle: bool) -> None:
        """Go on waiting for a head, or start to wait for it, after `size` bytes that did not complete it.

        `before` is how many requests had begun before these bytes. The start of a head may share its data
        with the end of the request before: then those bytes do not count. Data that belong to no head, such
        as the rest of a body that was refused, have the same deadline.
        """
        begins = self._requests != before
        self._last_body = None
        if begins:
            self._room = self.limits.max_head_bytes
        if not self._awaits_head or (begins and before):
            self._awaits_head = True
            self._connections.deadlines[self] = self.loop.time() + self.limits.head_timeout
        if self._has_head:
            return
        if begins and not ((was_idle or not before) and (self.cycle is None or self._cycle_number <= before)):
            return
        self._room -= size
        if self._room <= 0:
            self._refuse(431, f"The head of a request has at most {self.limits.max_head_bytes} bytes.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer with an error, and close the connection once its client had the time to read it."""
        if self.transport.is_closing():
            return
        self._ignores_data = True
        self._forget_plain()
        self._connections.log("Refused an HTTP request with %d. %s", status, message)
        if self.cycle is not None and not self.cycle.response_complete:
            if self.pipeline or self.cycle.response_started:
                drop(self.transport)  # an error amid another response would be taken for its body
                return
            self.cycle.disconnected = True  # the app must not answer too
            self.cycle.message_event.set()
        self.transport.write(Responses.refusal(self.server_state.default_headers, status, message))
        self._linger()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._ignores_data = True
        self.idle_until = None
        self._connections.deadlines[self] = self.loop.time() + LINGER_SECONDS
