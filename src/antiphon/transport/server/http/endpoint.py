"""The MCP endpoint over HTTP: POST for messages, GET for a session's stream, DELETE to end a session.

Owns the HTTP side of MCP: methods, headers, statuses, sessions and streams. The dialects read and write the
messages of a protocol version; the pipeline serves a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from antiphon.errors import (
    BadOrigin,
    Busy,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestError,
    SessionLost,
)
from antiphon.model.identity import Principal, Stranger
from antiphon.model.request import (
    LISTENING_REQUESTS,
    CallTool,
    RequestId,
    RequestMeta,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
)
from antiphon.runtime.budget import SMALL_MESSAGE_BYTES, Usage, share_of
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.failures import is_failure
from antiphon.runtime.execution.supervisor import Supervisor
from antiphon.runtime.observability.rate_limited_log import RateLimitedLog
from antiphon.transport.server.http import get_streams
from antiphon.transport.server.http.asgi import Receive, Scope, Send
from antiphon.transport.server.http.connections import stranger_at
from antiphon.transport.server.http.cors import Cors, is_preflight
from antiphon.transport.server.http.ending import Ending
from antiphon.transport.server.http.exchange import Exchange, send_json
from antiphon.transport.server.http.guard import Guard, accepts
from antiphon.transport.server.http.headers import check_head, read_headers
from antiphon.transport.server.http.known_heads import KnownHeaders
from antiphon.transport.server.http.lifespan import ServerLifespan
from antiphon.transport.server.http.listeners import Listeners
from antiphon.transport.server.http.plain_scopes import USUAL_ACCEPT, PlainScopes, is_usual, note_allowed
from antiphon.transport.server.http.request_body import read_body
from antiphon.transport.server.http.session_relay import SessionRelay
from antiphon.transport.server.http.sessions import Session, Sessions
from antiphon.transport.server.http.unread import SMALL_BYTES
from antiphon.transport.server.pipeline import Pipeline
from antiphon.wire import jsonrpc, mirrored_headers
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect

__all__ = ["Endpoint"]

logger = logging.getLogger("antiphon")

_SESSION_REQUESTS = (SetLogLevel, Subscribe, Unsubscribe)
"""Requests that change the state of a session, which other processes have to know."""

Headers = Mapping[bytes, bytes]
_NO_META = RequestMeta()


class Endpoint:
    """Serves MCP over HTTP for one server."""

    def __init__(
        self,
        engine: Engine,
        lifespan: ServerLifespan,
        *,
        path: str,
        hosts: Sequence[str] | None,
        origins: Sequence[str] | None,
    ) -> None:
        limits = engine.limits
        self._engine = engine
        self._lifespan = lifespan
        self._limits = limits
        self._max_body = limits.max_body_bytes
        self.small_body = min(SMALL_MESSAGE_BYTES, limits.max_body_bytes)
        """The size of a body for which no memory is reserved."""
        self._max_headers = limits.max_headers
        self.checks_heads = True
        """Whether the size of a head is checked here, because the HTTP server may not have a bound for it."""
        self._body_timeout = limits.body_timeout
        paths = (path.rstrip("/"), path.rstrip("/") + "/")
        self.plain_scopes = PlainScopes([each for each in paths if each.isascii()])
        """What is known of plain requests, by the address and the path to which they were sent."""
        self.guard = Guard({*paths, "", "/"}, hosts, origins, authenticates=engine.authenticates)
        self._cors = self.guard.cors
        self._refusals = RateLimitedLog()
        self._pipeline = Pipeline(engine)
        self.dialects = self._pipeline.dialects
        self._versions: dict[bytes | None, str | UnsetType | None] = {
            None: None,
            **{version.encode(): version for version in self.dialects.advertised},
        }
        self._usages = engine.usages
        self._budget = engine.budget
        self._call_share = share_of(limits.max_calls, limits.principal_share)
        self.sessions = Sessions(engine.seal, engine.info.name, limits, engine.budget, engine.tasks.use_once)
        self._ending = Ending(self._pipeline, self.sessions, engine.budget)
        self._session_relay = SessionRelay(engine.relay, self.sessions)
        self.supervisor = Supervisor()
        self._mirrored = engine.mirrored
        self.authenticates = engine.authenticates
        """Whether callers have to say who they are."""
        self._max_calls = limits.max_calls
        self._calls = 0
        self._listeners = Listeners(limits, engine.usages)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log = RateLimitedLog()

    @property
    def running_calls(self) -> int:
        """The number of requests that are being served, without streams that only listen."""
        return self._calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request of an ASGI server."""
        if self._cors is not None:
            send = self._cors.extending(scope, send)
        exchange = Exchange(send, receive, self._limits)
        exchange.stranger = stranger_at(scope.get("client"))
        await self._serve(exchange, scope)

    def answer_plain(
        self,
        exchange: Exchange,
        scope: Scope,
        headers: Headers,
        body: bytes,
        loop: asyncio.AbstractEventLoop,
    ) -> Coroutine[Any, Any, None]:
        """Return the work of answering a POST that an HTTP server has read itself.

        No header occurs twice, and the body is small. `scope` is one of `plain_scopes`, for the path of the
        request and the address of the server.
        """
        if (
            ((type(headers) is KnownHeaders and headers.usual_in is scope) or is_usual(scope, headers))
            and loop is self._loop
            and self._calls < self._max_calls
            and self._lifespan.started
            and not self.authenticates
        ):
            try:
                call = self._glance(exchange, body, headers, exchange.stranger)
            except Busy:  # the full path answers with it
                call = None
            if call is not None:
                return self._run(exchange, call, loop)
        return self._serve(exchange, scope, headers, body)

    async def _run(self, exchange: Exchange, call: Call[Any], loop: asyncio.AbstractEventLoop) -> None:
        """Answer a usual request, which has been read."""
        self.supervisor.enter(exchange, loop)
        try:
            outcome = await self._engine.handle(call)
            answer = self._pipeline.response(exchange.dialect, call, outcome)
            if len(answer) > SMALL_BYTES or exchange.event_stream is not None:
                await self._ending.answer(exchange, call, answer)
            else:
                exchange.phase = "answering"
                if not exchange.write(answer):
                    await exchange.send_answer(answer)
        except BaseException as error:
            await self._ending.fail(exchange, error)
        finally:
            self._leave(exchange)

    async def _serve(
        self,
        exchange: Exchange,
        scope: Scope,
        headers: Headers | None = None,
        body: bytes | None = None,
    ) -> None:
        """Answer any request, of which an HTTP server may have read the headers and the body."""
        loop = self._loop
        if loop is None or loop.is_closed():
            loop = self._loop = asyncio.get_running_loop()
            self.supervisor.forget()
        self.supervisor.enter(exchange, loop)
        exchange.deadline = exchange.started + self._body_timeout
        try:
            call = await self._read(exchange, scope, headers, body)
            if call is None:
                return
            if type(call.request) in LISTENING_REQUESTS:
                with self._listening(exchange, call.principal):
                    outcome = await self._engine.handle(call)
            else:
                outcome = await self._engine.handle(call)
                if exchange.session is not None and type(call.request) in _SESSION_REQUESTS:
                    await self._session_relay.forward_change(exchange.session, call.request)
            answer = self._pipeline.response(exchange.dialect, call, outcome)
            del outcome  # it may be as large as the answer, and is not needed while a client reads
            await self._ending.answer(exchange, call, answer)
        except BaseException as error:
            await self._ending.fail(exchange, error)
        finally:
            self._leave(exchange)

    def _leave(self, exchange: Exchange) -> None:
        self.supervisor.leave(exchange)
        if exchange.is_counted:
            self._calls -= 1
        if exchange.usage is not None:
            exchange.usage.calls -= 1
        if exchange.session is not None and exchange.call is not None:
            exchange.session.calls.remove(exchange.call.id, exchange)
        exchange.call = None  # the two refer to each other: without this, each request waits for the gc
        if exchange.has_resources:
            exchange.close()

    # Reading a request

    async def _read(
        self, exchange: Exchange, scope: Scope, headers: Headers | None, body: bytes | None
    ) -> Call[Any] | None:
        """Return the call of a request; `None` for a request that is no call, and has got its response."""
        if not self._lifespan.started:
            await self._lifespan.start_for_request()
        if headers is None:
            lines = scope["headers"]
            if self.checks_heads or len(lines) > self._max_headers:
                check_head(scope, self._limits)
            exchange.headers = headers = read_headers(lines)
        try:
            self.guard.check(scope, headers)
            if body is None and is_preflight(scope["method"], headers):
                await self._answer_preflight(exchange, headers)
                return None
        except BadOrigin as error:
            self._refusals.warning("Refused a request: %s", error.message)
            raise
        if body is not None:
            note_allowed(scope, headers)
        principal = await self._principal(exchange, headers) if self.authenticates else exchange.stranger
        read: bytes | bytearray | None = body
        if read is None:
            if scope["method"] != "POST":
                self._engine.scopes.check(principal, None, {})
                await self._get_or_delete(exchange, scope["method"], headers, principal)
                return None
            account = partial(exchange.open_account, self._budget, principal.share)
            read = await read_body(exchange.receive, headers, self._max_body, self.small_body, account)
        try:
            call = self._understand(exchange, read, headers, principal)
        except _NotCached as missing:
            opened = await self._open_session(missing, principal)
            call = self._understand(exchange, read, headers, principal, opened)
        if isinstance(call, Frame):
            self._engine.scopes.check(principal, None, {})
            await self._take_message(exchange, call, headers, principal)
            await send_json(exchange.send, 202, b"")
            return None
        return call

    async def _answer_preflight(self, exchange: Exchange, headers: Headers) -> None:
        """Answer a browser that asks if a page may send a request; raises `BadOrigin`. It sends no token."""
        self.guard.check_named(headers)
        await send_json(exchange.send, 204, b"", Cors.preflight)

    async def _principal(self, exchange: Exchange, headers: Headers) -> Principal:
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        try:
            return await self._engine.identify(given)
        except RequestError:
            raise
        except BaseException as error:
            if not is_failure(error, exchange):
                raise
            logger.exception("The authenticate function of the server failed.")
            raise InternalError("The server failed to authenticate this request.") from None

    def _understand(
        self,
        exchange: Exchange,
        body: bytes | bytearray,
        headers: Headers,
        principal: Principal,
        opened: Session | None = None,
    ) -> Call[Any] | Frame:
        """Return the call in a body, or the frame of a message that gets no answer.

        Raises `_NotCached` if the body belongs to a session that has to be opened first, as `opened`.
        """
        accept = headers.get(b"accept")
        usual = accept == USUAL_ACCEPT
        prefers_json, takes_streams = (True, True) if usual else accepts(accept)
        if usual and self._calls < self._max_calls:
            call = self._glance(exchange, body, headers, principal)
            if call is not None:
                return call
        if not takes_streams:
            exchange.takes_streams = False
        frame = jsonrpc.decode(body)
        try:
            version = self._version(headers)
            session = None
            token = headers.get(b"mcp-session-id")
            if token is not None and not self.dialects.is_sessionless(frame, version):
                name = token.decode("latin-1").strip()
                session = exchange.session = opened or self.sessions.find(name, principal)
                if session is None:
                    raise _NotCached(name, frame.request_id)
            negotiated = None if session is None else session.negotiated
            dialect = self.dialects.choose(frame, version, negotiated)
            exchange.dialect, exchange.phase = dialect, "addressed"
            request_id = frame.request_id
            if request_id is None or frame.method is UNSET:
                dialect.check_message(frame, headers)
                return frame
            request, request_meta = self._pipeline.read(frame, dialect, negotiated, headers)
            if type(request) is CallTool:
                if request.name in self._mirrored and not self._engine.hides_tool(request.name, principal):
                    dialect.check_mirrored(self._mirrored[request.name], request, headers)
            elif type(request) in LISTENING_REQUESTS and not takes_streams:
                raise NotAcceptable("Changes come as an event stream: accept text/event-stream.")
            self._pipeline.check_room(self._calls)
        except RequestError as error:
            error.request_id = frame.request_id
            raise
        if not prefers_json or type(request) in LISTENING_REQUESTS:
            exchange.streams_only = True
        call = self._begin(exchange, dialect, request, request_meta, request_id, principal)
        if session is not None:
            session.calls[request_id] = exchange
            exchange.can_ask = takes_streams and not dialect.rounds
        return call

    def _glance(
        self, exchange: Exchange, body: bytes | bytearray, headers: Headers, principal: Principal
    ) -> Call[Any] | None:
        """Return the call of a usual request, read in one step; `None` for a body to be read in full."""
        token = headers.get(b"mcp-session-id")
        if token is not None:
            return self._glance_in_session(exchange, token, body, headers, principal)
        plain = self.dialects.glance(body, headers)
        if plain is None:
            return None
        dialect, request_id, request, request_meta = plain
        if type(request) is CallTool and request.name in self._mirrored:
            return None
        exchange.dialect = dialect
        return self._begin(exchange, dialect, request, request_meta, request_id, principal)

    def _glance_in_session(
        self,
        exchange: Exchange,
        token: bytes,
        body: bytes | bytearray,
        headers: Headers,
        principal: Principal,
    ) -> Call[CallTool] | None:
        try:
            session = self.sessions.find(token.decode("latin-1"), principal)
        except SessionLost:
            return None
        plain = (
            None if session is None else self.dialects.glance_in_session(body, headers, session.negotiated)
        )
        if session is None or plain is None or plain[2].name in self._mirrored:
            return None
        dialect, request_id, request = plain
        if session.request_meta is None:
            session.request_meta = dialect.session_meta(session.negotiated)
        exchange.session, exchange.dialect, exchange.can_ask = session, dialect, True
        call = self._begin(exchange, dialect, request, session.request_meta, request_id, principal)
        session.calls[request_id] = exchange
        return call

    async def _open_session(self, missing: _NotCached, principal: Principal) -> Session:
        try:
            return await self.sessions.open(missing.token, principal)
        except RequestError as error:
            error.request_id = missing.request_id
            raise

    def _begin(
        self,
        exchange: Exchange,
        dialect: Dialect,
        request: Any,
        request_meta: RequestMeta,
        request_id: RequestId,
        principal: Principal,
    ) -> Call[Any]:
        """Build the call of an exchange, and count it; raises `Busy` if the caller has too many."""
        if share := principal.share:
            usage = self._usages.known.get(share)
            if usage is None or usage.calls >= self._call_share:
                usage = self._check_share(principal, request_id)
            usage.calls += 1
            exchange.usage = usage
        state = None if exchange.session is None else exchange.session.state
        call = exchange.call = self._pipeline.call(
            dialect, request, request_meta, request_id, exchange, exchange, principal, state
        )
        exchange.phase = "running"
        self._calls += 1
        exchange.is_counted = True
        return call

    def _check_share(self, principal: Principal, request_id: RequestId) -> Usage:
        """Return where the calls of a caller are counted; raises `Busy` if it has too many."""
        usage = self._usages.of(principal.share)
        if usage.calls >= self._call_share:
            if isinstance(principal, Stranger):
                self._log.warning(
                    "Refusing calls from %s: %d run, and one address may have no more. If this is a load "
                    "balancer, raise Limits.principal_share.",
                    principal.share,
                    usage.calls,
                )
            error = Busy(f"You have {usage.calls} of at most {self._call_share} running calls: try again.")
            error.request_id = request_id
            raise error
        return usage

    def _version(self, headers: Headers) -> str | None:
        version = self._versions.get(headers.get(b"mcp-protocol-version"), UNSET)
        if version is UNSET:
            return headers[b"mcp-protocol-version"].decode("latin-1").strip()
        return version

    async def _take_message(
        self, exchange: Exchange, frame: Frame, headers: Headers, principal: Principal
    ) -> None:
        """Take a notification or a response, neither of which gets an answer."""
        session, dialect = exchange.session, exchange.dialect
        if frame.method is not UNSET:
            if session is not None:
                unknown = session.calls.handle_notification(frame)
                if unknown is not None and self._session_relay.is_open:
                    await self._session_relay.forward_cancellation(session, unknown)
            return
        try:
            request = dialect.answered(frame)
            if session is not None and session.asker_of(frame.request_id) is not None:
                request = None  # the id names the question, and the task may ask another one by now
            if request is None:
                await self._take_answer_in_session(session, frame, headers)
        except RequestError:
            exchange.phase = "reading"  # the message is refused as a whole; its id is one of the server's
            raise
        if request is not None:
            await self._take_answer(exchange, request, principal)

    async def _take_answer_in_session(self, session: Session | None, frame: Frame, headers: Headers) -> None:
        """Take a response to a question of a session; raises `InvalidRequest` if there is none to answer."""
        if self.dialects.is_sessionless(frame, self._version(headers)):
            raise InvalidRequest("In this version a server makes no requests: there is nothing to answer.")
        if session is None:
            raise InvalidRequest(
                "There is nothing to answer: this message names no session, in which a server asks."
            )
        await self._session_relay.take_answer(session, frame)

    async def _take_answer(self, exchange: Exchange, request: Any, principal: Principal) -> None:
        """Take a response that answers the question of a task, which was asked on no connection."""
        try:
            self._pipeline.check_room(self._calls)
            call = self._begin(exchange, exchange.dialect, request, _NO_META, 0, principal)
            await self._engine.handle(call)
        except Exception:
            # A response has no answer with an id: the message is refused as a whole.
            exchange.call, exchange.phase = None, "reading"
            raise

    # GET and DELETE

    async def _get_or_delete(
        self, exchange: Exchange, method: str, headers: Headers, principal: Principal
    ) -> None:
        token = headers.get(b"mcp-session-id")
        if token is None or method not in ("GET", "DELETE"):
            raise MethodNotAllowed("Send requests with POST.")
        mirrored_headers.check_method(None, headers)  # there is no message
        mirrored_headers.check_name(None, headers)
        name = token.decode("latin-1").strip()
        if method == "DELETE":
            ended = await self.sessions.end(name, principal)
            self._engine.telemetry.record_session(ended.age, ended.facts)
            await self._session_relay.forward_end(ended)
            await send_json(exchange.send, 204, b"")
            return
        session = await self.sessions.open(name, principal)
        if not accepts(headers.get(b"accept"))[1]:
            raise NotAcceptable("A GET is answered with an event stream: accept text/event-stream.")
        last_event = headers.get(b"last-event-id")
        with self._listening(exchange, principal):
            found = None
            if last_event is not None:
                found = get_streams.find(session, last_event.decode("latin-1").strip())
            exchange.dialect = self.dialects.negotiate(session.negotiated.version)
            exchange.phase = "running"
            if found is not None:
                await get_streams.resume(session, found, exchange)
            else:
                await self._session_relay.request_state(session)
                await get_streams.listen(self._engine, session, exchange, principal)

    def _listening(self, exchange: Exchange, principal: Principal) -> AbstractContextManager[None]:
        """Count a stream that has no end of its own; raises `Busy`."""
        listening = self._listeners.counting(principal.share)
        exchange.deadline = float("inf")
        if exchange.is_counted:  # a listener does not count towards `Limits.max_calls`
            exchange.is_counted = False
            self._calls -= 1
            if exchange.usage is not None:
                exchange.usage.calls -= 1
                exchange.usage = None
        if exchange.account is not None:  # the body is not needed any more
            exchange.account.release(exchange.account.size)
        return listening


class _NotCached(Exception):
    """This process does not cache the session of a request, and has to look for it."""

    def __init__(self, token: str, request_id: RequestId | None) -> None:
        self.token = token
        self.request_id = request_id
