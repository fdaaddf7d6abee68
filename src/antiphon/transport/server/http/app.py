"""The HTTP transport of a server, as an ASGI app.

Owns what is HTTP about MCP: methods, headers, statuses, sessions and streams. Which version a
request speaks, and what that version says, is the dialects' business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET, UnsetType

from antiphon.errors import (
    BodyTooLarge,
    Busy,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestError,
    StoreError,
)
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.request import CallTool, Initialize, Listen, SetLogLevel, Subscribe, Unsubscribe
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.supervisor import Supervisor
from antiphon.transport.server import pipeline as writing
from antiphon.transport.server.http import get_streams as streams
from antiphon.transport.server.http.event_stream import Receive, Send
from antiphon.transport.server.http.exchange import Exchange, send_json
from antiphon.transport.server.http.guard import Guard, accepts
from antiphon.transport.server.http.lifespan import ServerLifespan
from antiphon.transport.server.http.session_relay import SessionRelay
from antiphon.transport.server.http.sessions import Sessions
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Negotiated
from antiphon.wire.versions import Dialects

__all__ = ["App"]

logger = logging.getLogger("antiphon")
_USUAL_ACCEPT = b"application/json, text/event-stream"
"""What clients of MCP accept, as they all write it."""
_WISHES = (SetLogLevel, Subscribe, Unsubscribe)
"""What a session tells us to keep in mind."""
_AT_ONCE = 32 * 1024
"""How much is written to a connection without waiting for the other end."""

Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]


class App:
    """Serves one server over HTTP."""

    def __init__(
        self,
        host: Engine,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        self._host = host
        self._limits = host.limits
        self._most = host.limits.max_body_bytes
        self._most_calls = host.limits.max_calls
        self._body_time = host.limits.body_timeout
        self._digits = len(str(host.limits.max_body_bytes))
        self._guard = Guard({path.rstrip("/"), path.rstrip("/") + "/", "", "/"}, hosts, origins)
        self._dialects = Dialects(host.info)
        self._versions: dict[bytes | None, str | UnsetType | None] = {
            None: None,
            **{version.encode(): version for version in self._dialects.advertised},
        }
        self._sessions = Sessions(host.seal, host.info.name, host.limits)
        self._elsewhere = SessionRelay(host.relay, self._sessions)
        self._warden = Supervisor()
        self._mirrored = host.mirrored
        self._authenticates = host.authenticates
        self._handle = host.handle
        self._calls = 0
        self._streams = 0
        self._owner = ServerLifespan(host)
        self.failure: Exception | None = None
        """Why it did not start, if it did not."""
        self._leaving = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._not_http(scope, receive, send)
            return
        exchange = Exchange(send, receive, self._limits.keep_alive_interval)
        loop = self._loop
        if loop is None or loop.is_closed():
            loop = self._loop = asyncio.get_running_loop()
            self._warden.forget()
        self._warden.enter(exchange, loop)
        exchange.deadline = exchange.started + self._body_time
        try:
            if not self._owner.started:
                await self._start()
            headers: dict[bytes, bytes] = dict(scope["headers"])
            self._guard.check(scope, headers)
            principal = await self._principal(headers) if self._authenticates else ANONYMOUS
            if scope["method"] != "POST":
                await self._other(exchange, scope, headers, principal)
                return
            if len(headers.get(b"content-length", b"")) >= self._digits:
                self._check_length(headers)
            message = await receive()
            body = message.get("body")
            if body is None or len(body) > self._most or message.get("more_body"):
                body = await self._rest(message, receive)
            if not self._understand(exchange, body, headers, principal):
                if exchange.is_understood:
                    await self._take_answer(exchange)
                elif exchange.elsewhere is not None:
                    await exchange.elsewhere
                await send_json(send, 202, b"")
                return
            if type(exchange.request) is Listen:
                with self._listening(exchange):
                    outcome = await self._handle(exchange)
            else:
                outcome = await self._handle(exchange)
                if exchange.session is not None and type(exchange.request) in _WISHES:
                    await self._elsewhere.wants(exchange.session, exchange.request)
            answer = writing.response(exchange.dialect, exchange.request, exchange.id, outcome)
            exchange.answering = True
            if len(answer) > _AT_ONCE:  # a caller that does not read it may not keep us for ever
                exchange.deadline = loop.time() + self._limits.body_timeout
            if exchange.outlet is not None or exchange.streams_only or type(exchange.request) is Initialize:
                await self._answer(exchange, answer)
            else:
                head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await send({"type": "http.response.body", "body": answer})
        except Exception as error:
            await self._refuse(exchange, error)
        except asyncio.CancelledError:
            await self._stopped(exchange)
        finally:
            self._warden.leave(exchange)
            if exchange.is_counted:
                self._calls -= 1
            if exchange.session is not None:
                exchange.session.calls.pop(exchange.id, None)
            if exchange.outlet is not None or exchange.tasks is not None:
                exchange.close()

    # Understanding a request

    async def _principal(self, headers: Headers) -> Principal:
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        try:
            return await self._host.identify(given)
        except RequestError:
            raise
        except Exception:
            logger.exception("Finding out who is calling failed.")
            raise InternalError("The server failed to find out who is calling.") from None

    def _check_length(self, headers: Headers) -> None:
        length = headers[b"content-length"]
        if length.isdigit() and int(length[:20]) > self._limits.max_body_bytes:
            raise BodyTooLarge(f"A request has {self._limits.max_body_bytes} bytes at most.")

    async def _rest(self, message: MutableMapping[str, Any], receive: Receive) -> bytes | bytearray:
        """A body that comes in pieces, or not at all; raises `BodyTooLarge`."""
        most = self._limits.max_body_bytes
        parts = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise _CallerGone
            parts += message.get("body", b"")
            if len(parts) > most:
                raise BodyTooLarge(f"A request has {most} bytes at most.")
            if not message.get("more_body", False):
                return parts
            message = await receive()

    def _understand(
        self, exchange: Exchange, body: bytes | bytearray, headers: Headers, principal: Principal
    ) -> bool:
        """Read a request into its exchange; false for a message that gets no answer, and was taken."""
        accept = headers.get(b"accept")
        usual = accept == _USUAL_ACCEPT
        prefers_json, takes_streams = (True, True) if usual else accepts(accept)
        if usual and self._calls < self._most_calls:
            plain = self._dialects.glance(body, headers)
            if plain is not None and plain[2].name not in self._mirrored:
                exchange.dialect, exchange.id, exchange.request, exchange.request_meta = plain
                exchange.rounds = exchange.dialect.rounds
                if principal is not ANONYMOUS:
                    exchange.principal = principal
                self._calls += 1
                exchange.is_counted = True
                return True
        if not takes_streams:
            exchange.takes_streams = False
        frame = jsonrpc.decode(body)
        request_id = frame.request_id
        version = self._versions.get(headers.get(b"mcp-protocol-version"), UNSET)
        if version is UNSET:
            version = headers[b"mcp-protocol-version"].decode("latin-1").strip()
        try:
            negotiated: Negotiated | None = None
            token = headers.get(b"mcp-session-id")
            if token is not None and not self._dialects.is_sessionless(frame, version):
                session = self._sessions.open(token.decode("latin-1").strip(), principal)
                negotiated = session.negotiated
                exchange.session, exchange.peer = session, session.peer
            dialect = self._dialects.choose(frame, version, negotiated)
            if request_id is None or frame.method is UNSET:
                exchange.dialect, exchange.principal = dialect, principal
                self._told(frame, exchange, version)
                return False
            exchange.dialect = dialect
            request, exchange.request_meta = dialect.understand(frame, negotiated, headers)
            if type(request) is CallTool:
                if request.name in self._mirrored:
                    dialect.check_mirrored(self._mirrored[request.name], request, headers)
            elif type(request) is Listen and not exchange.takes_streams:
                raise NotAcceptable("Changes come as an event stream: accept text/event-stream.")
            if self._calls >= self._limits.max_calls:
                raise Busy("The server is at its limit of calls: try again.")
        except RequestError as error:
            error.request_id = request_id
            raise
        self._calls += 1
        exchange.is_counted = True
        exchange.request = request
        exchange.id = request_id
        exchange.rounds = dialect.rounds
        if principal is not ANONYMOUS:
            exchange.principal = principal
        if not prefers_json or type(request) is Listen:
            exchange.streams_only = True
        if exchange.session is not None:
            exchange.session.calls[request_id] = exchange
            exchange.can_ask = exchange.takes_streams and not dialect.rounds
        return True

    def _told(self, frame: Frame, exchange: Exchange, version: str | None) -> None:
        """Take a notification, or a response; nobody waits for an answer to these."""
        session = exchange.session
        exchange.session = None
        if frame.method is UNSET:
            request = exchange.dialect.answered(frame)
            if request is not None:
                exchange.request = request
                return
            if self._dialects.is_sessionless(frame, version):
                raise InvalidRequest(
                    "This version has no requests of the server's, so there is nothing to answer."
                )
            if session is not None and not session.questions.answer(frame) and self._elsewhere.exists:
                exchange.elsewhere = self._elsewhere.answer(session, frame)
        elif session is not None:
            unknown = session.calls.told(frame)
            if unknown is not None and self._elsewhere.exists:
                exchange.elsewhere = self._elsewhere.cancel(session, unknown)

    async def _take_answer(self, exchange: Exchange) -> None:
        """Take a response that answers a question which is not on any connection: a task's."""
        try:
            if self._calls >= self._limits.max_calls:
                raise Busy("The server is at its limit of calls: try again.")
            self._calls += 1
            exchange.is_counted = True
            await self._handle(exchange)
        except Exception:
            # Nobody waits for an answer with its id, so that it is refused as a whole.
            del exchange.request, exchange.dialect
            raise

    # Answering it

    async def _answer(self, exchange: Exchange, answer: bytes) -> None:
        """Send an answer, on the stream if there is one, with a session id if it opens one."""
        request = exchange.request
        if exchange.outlet is not None or exchange.streams_only:
            await exchange.stream().finish(answer)
        elif type(request) is Initialize:
            negotiated = Negotiated(exchange.dialect.version, request.capabilities, request.client_info)
            token = self._sessions.create(negotiated, exchange.principal)
            await send_json(exchange.send, 200, answer, (("mcp-session-id", token),))
        else:
            await send_json(exchange.send, 200, answer)

    async def _refuse(self, exchange: Exchange, raised: Exception) -> None:
        """Answer with what went wrong."""
        if exchange.answering:
            raise raised
        if isinstance(raised, _CallerGone):
            return
        dialect, understood = exchange.known_dialect, exchange.is_understood
        error = self._host.error_of(exchange, raised)
        exchange.answering = True
        if dialect is None:
            status, body = (
                error.status,
                jsonrpc.failure(error.request_id, error.code, error.message, error.data),
            )
        elif understood:
            status = dialect.status(error, understood=True)
            body = writing.refusal(dialect, exchange.request, exchange.id, error)
        else:
            status, body = dialect.status(error, understood=False), dialect.error(error.request_id, error)
        if exchange.outlet is not None:
            await exchange.outlet.finish(body)
        else:
            await send_json(exchange.send, status, body, error.headers)

    async def _stopped(self, exchange: Exchange) -> None:
        """What to say when the task was cancelled, by us or by whoever runs this app."""
        reason = exchange.stopped
        if reason is None:
            raise asyncio.CancelledError
        exchange.absolve()
        if exchange.answering:
            return
        if not exchange.is_understood:
            if reason == "deadline":
                body = jsonrpc.failure(None, -32600, "The request did not arrive in time.")
                await send_json(exchange.send, 408, body, (("connection", "close"),))
        elif reason == "deadline":
            exchange.stopped = None
            try:
                outcome = await self._host.overdue(exchange)
                answer = writing.response(exchange.dialect, exchange.request, exchange.id, outcome)
                await self._answer(exchange, answer)
            except RequestError as error:
                await self._refuse(exchange, error)
        elif reason == "cancelled":
            await exchange.stream().end()

    # GET and DELETE

    async def _other(self, exchange: Exchange, scope: Scope, headers: Headers, principal: Principal) -> None:
        token = headers.get(b"mcp-session-id")
        if token is None or scope["method"] not in ("GET", "DELETE"):
            raise MethodNotAllowed("Send requests with POST.")
        name = token.decode("latin-1").strip()
        if scope["method"] == "DELETE":
            await self._elsewhere.ended(self._sessions.end(name, principal))
            await send_json(exchange.send, 204, b"")
            return
        session = self._sessions.open(name, principal)
        if not accepts(headers.get(b"accept"))[1]:
            raise NotAcceptable("What comes by GET is an event stream: accept text/event-stream.")
        last_event = headers.get(b"last-event-id")
        with self._listening(exchange):
            if last_event is not None:
                taken_up = streams.find(session, last_event.decode("latin-1").strip())
                exchange.dialect = self._dialects.negotiate(session.negotiated.version)
                exchange.request = None
                await streams.take_up(taken_up, exchange)
            else:
                exchange.dialect = self._dialects.negotiate(session.negotiated.version)
                exchange.request = None
                await self._elsewhere.ask(session)
                await streams.listen(self._host.changes, session, exchange)

    @contextmanager
    def _listening(self, exchange: Exchange) -> Iterator[None]:
        """Count a stream that has no end of its own; raises `Busy`."""
        if self._streams >= self._limits.max_listeners:
            raise Busy("The server is at its limit of listeners: try again later.", retry_after=30)
        exchange.deadline = float("inf")
        if exchange.is_counted:  # it is a listener, and no call that anybody waits for
            exchange.is_counted = False
            self._calls -= 1
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    # Starting and stopping

    @property
    def is_ready(self) -> bool:
        """Whether to send it requests: it has started, and is not shutting down."""
        return self._owner.started and not self._leaving

    def begin_shutdown(self) -> None:
        """End what never ends by itself; calls under way go on."""
        self._leaving = True
        self._host.changes.close()

    async def shutdown(self) -> None:
        """Wait for the calls under way, for `Limits.drain_timeout` seconds at most, then close the server."""
        self.begin_shutdown()
        if not await self._warden.drained(self._limits.drain_timeout):
            logger.warning("Shutting down with %d calls still under way.", len(self._warden))
            self._warden.stop("shutdown")
        await self._owner.stop()

    async def _start(self) -> None:
        """Open the lifespan with the first request, where no lifespan event came before it."""
        try:
            await self._owner.start()
        except Exception as error:
            _report(error)
            raise InternalError("The server could not start. Its log has the details.") from None

    async def _not_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        while scope["type"] == "lifespan":
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._owner.start()
                except Exception as error:
                    self.failure = error
                    _report(error)
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _report(error: Exception) -> None:
    """Say why the server does not start; where its store is away, a traceback helps nobody."""
    if isinstance(error, StoreError):
        logger.error("The server cannot start. %s", error)
    else:
        logger.error("The server's lifespan failed to start.", exc_info=error)


class _CallerGone(Exception):
    """The caller went away before it had said what it wants."""
