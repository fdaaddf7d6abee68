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

import msgspec
from msgspec import UNSET

from antiphon.errors import (
    BodyTooLarge,
    Busy,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NoEndpoint,
    NotAcceptable,
    RequestError,
)
from antiphon.model.party import ANONYMOUS, Principal
from antiphon.model.request import CallTool, Cancel, Initialize, Listen
from antiphon.runtime.call import Call
from antiphon.runtime.host import Host
from antiphon.runtime.warden import Warden, Watched
from antiphon.transport import streams, writing
from antiphon.transport.guard import Guard, accepts, check_content_type
from antiphon.transport.owner import Owner
from antiphon.transport.reply import Receive, Reply, Send, send_json
from antiphon.transport.sessions import Session, Sessions
from antiphon.wire import jsonrpc
from antiphon.wire.dialect import Dialect, Negotiated
from antiphon.wire.dialects import Dialects
from antiphon.wire.jsonrpc import Frame

__all__ = ["App"]

logger = logging.getLogger("antiphon")
Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]


class App:
    """Serves one server over HTTP."""

    def __init__(
        self,
        host: Host,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        self._host = host
        self._limits = host.limits
        self._paths = frozenset({path.rstrip("/"), path.rstrip("/") + "/", "", "/"})
        self._guard = Guard(hosts, origins)
        self._dialects = Dialects(host.info)
        self._sessions = Sessions(host.seal, host.info.name, host.limits)
        self._warden = Warden()
        self._streams = 0
        self._owner = Owner(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] == "POST":
                await self._guarded(self._post, scope, receive, send)
            else:
                await self._guarded(self._other, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})

    def begin_shutdown(self) -> None:
        """End what never ends by itself; calls under way go on."""
        self._host.changes.close()

    async def shutdown(self) -> None:
        """Wait for the calls under way, for `Limits.drain` seconds at most, then close the server."""
        self.begin_shutdown()
        if not await self._warden.drained(self._limits.drain):
            logger.warning("Shutting down with %d calls still under way.", len(self._warden))
            self._warden.stop("shutdown")
        await self._owner.stop()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._owner.start()
                except Exception as error:
                    logger.exception("The server's lifespan failed to start.")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # Every request

    async def _guarded(self, serve: Any, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request under the warden's eyes, and turn what goes wrong before it into a response."""
        watched = self._warden.enter()
        watched.deadline = watched.started + self._limits.body_time
        try:
            if not self._owner.started:
                await self._start()
            headers: dict[bytes, bytes] = dict(scope["headers"])
            self._check_path(scope)
            self._guard.check(scope, headers)
            principal = await self._principal(headers) if self._host.authenticates else ANONYMOUS
            await serve(scope, receive, send, headers, principal, watched)
        except RequestError as error:
            body = jsonrpc.failure(error.request_id, error.code, error.message, error.data)
            await send_json(send, error.status, body, error.headers)
        except asyncio.CancelledError:
            if watched.stopped is None:
                raise
            watched.absolve()
            if watched.stopped == "deadline":
                body = jsonrpc.failure(None, -32600, "The request did not arrive in time.")
                await send_json(send, 408, body, (("connection", "close"),))
        finally:
            self._warden.leave(watched)

    def _check_path(self, scope: Scope) -> None:
        path = scope["path"]
        root = scope.get("root_path", "")
        if (path.removeprefix(root) if root else path) not in self._paths:
            raise NoEndpoint(f"There is no MCP endpoint at {path}.")

    async def _start(self) -> None:
        """Open the lifespan with the first request, where no lifespan event came before it."""
        try:
            await self._owner.start()
        except Exception:
            logger.exception("The server's lifespan failed to start.")
            raise InternalError("The server could not start. Its log has the details.") from None

    async def _principal(self, headers: Headers) -> Principal:
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        try:
            return await self._host.identify(given)
        except RequestError:
            raise
        except Exception:
            logger.exception("Finding out who is calling failed.")
            raise InternalError("The server failed to find out who is calling.") from None

    # POST

    async def _post(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Headers,
        principal: Principal,
        watched: Watched,
    ) -> None:
        check_content_type(headers)
        prefers_json, takes_streams = accepts(headers.get(b"accept"))
        body = await self._body(receive, headers)
        if body is None:
            return
        frame = jsonrpc.decode(body)
        request_id = frame.request_id
        dialect: Dialect | None = None
        try:
            version = headers.get(b"mcp-protocol-version")
            version_text = None if version is None else version.decode("latin-1").strip()
            session = self._session(frame, version_text, headers, principal)
            dialect = self._dialects.choose(
                frame, version_text, None if session is None else session.negotiated
            )
            if request_id is None or frame.method is UNSET:
                await self._told(frame, session, version_text)
                await send_json(send, 202, b"")
                return
            terms = dialect.terms(frame, None if session is None else session.negotiated)
            dialect.check_headers(frame, headers)
            request = dialect.parse(frame)
            if type(request) is Listen and not takes_streams:
                raise NotAcceptable("Changes come as an event stream: accept text/event-stream.")
            if type(request) is CallTool and (mirrored := self._host.mirrored(request.name)):
                dialect.check_mirrored(mirrored, request, headers)
            if len(self._warden) - self._streams > self._limits.calls:
                raise Busy("The server is at its limit of calls: try again.")
        except RequestError as error:
            await self._refuse(send, dialect, request_id, error)
            return
        reply = Reply(
            send,
            receive,
            watched,
            dialect,
            request_id,
            streams=takes_streams,
            keep_alive=self._limits.keep_alive,
            closing_cancels=dialect.closing_cancels,
            new_replay=session.stream if session is not None and dialect.resumable else None,
            questions=None if session is None else session.questions,
        )
        call = Call(
            request,
            id=request_id,
            terms=terms,
            principal=principal,
            watched=watched,
            notify=reply.notify,
            peer=None if session is None else session.peer,
            close_stream=reply.detach,
            rounds=dialect.rounds,
            ask=None if session is None or dialect.rounds or not takes_streams else reply.ask,
        )
        if type(request) is Listen:
            with self._listening(watched):
                await self._serve(call, reply, dialect, session, prefers_json=False)
        else:
            await self._serve(call, reply, dialect, session, prefers_json)

    async def _serve(
        self, call: Call[Any], reply: Reply, dialect: Dialect, session: Session | None, prefers_json: bool
    ) -> None:
        """Run the call and send how it ended."""
        watched = call.watched
        if session is not None:
            session.calls[call.id] = watched
        status = 200
        headers: tuple[tuple[str, str], ...] = ()
        try:
            try:
                outcome = await self._host.handle(call)
                body = writing.response(dialect, call.request, call.id, outcome)
                if type(call.request) is Initialize:
                    headers = (("mcp-session-id", self._initialized(call, dialect)),)
            except RequestError as error:
                body = writing.refusal(dialect, call.request, call.id, error)
                status, headers = dialect.status(error, understood=True), error.headers
            watched.tick = None
            watched.deadline = asyncio.get_running_loop().time() + self._limits.body_time
            if prefers_json:
                await reply.answer(body, status=status, headers=headers)
            else:
                await reply.stream(body)
        except asyncio.CancelledError:
            if watched.stopped is None:
                raise
            watched.absolve()
            if watched.stopped == "cancelled":
                await reply.nothing()
        finally:
            if session is not None:
                session.calls.pop(call.id, None)
            reply.close()

    async def _refuse(
        self, send: Send, dialect: Dialect | None, request_id: Any, error: RequestError
    ) -> None:
        """Answer a request that was not understood."""
        if dialect is None:
            body = jsonrpc.failure(request_id, error.code, error.message, error.data)
            await send_json(send, error.status, body, error.headers)
        else:
            status = dialect.status(error, understood=False)
            await send_json(send, status, dialect.error(request_id, error), error.headers)

    async def _body(self, receive: Receive, headers: Headers) -> bytes | bytearray | None:
        """The whole body, or `None` if the caller went away; raises `BodyTooLarge`."""
        most = self._limits.body
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            if len(body) > most:
                raise _too_large(most)
            return body
        parts = bytearray(body)
        while len(parts) <= most:
            if not message.get("more_body", False):
                return parts
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts += message.get("body", b"")
        raise _too_large(most)

    # Sessions

    def _session(
        self, frame: Frame, version: str | None, headers: Headers, principal: Principal
    ) -> Session | None:
        token = headers.get(b"mcp-session-id")
        if token is None or self._dialects.is_sessionless(frame, version):
            return None
        return self._sessions.open(token.decode("latin-1").strip(), principal)

    def _initialized(self, call: Call[Initialize], dialect: Dialect) -> str:
        request = call.request
        negotiated = Negotiated(dialect.version, request.capabilities, request.client_info)
        return self._sessions.create(negotiated, call.principal)

    async def _told(self, frame: Frame, session: Session | None, version: str | None) -> None:
        """Take a notification, or a response; nobody waits for an answer to these."""
        if frame.method is UNSET:
            if self._dialects.is_sessionless(frame, version):
                raise InvalidRequest(
                    "This version has no requests of the server's, so there is nothing to answer."
                )
            if session is not None:
                session.questions.answer(frame)
            return
        if frame.method == "notifications/cancelled" and session is not None:
            try:
                cancel = msgspec.convert(frame.params, Cancel)
            except msgspec.ValidationError:
                return
            watched = session.calls.get(cancel.request_id)
            if watched is not None:
                watched.stop("cancelled")

    # GET and DELETE

    async def _other(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Headers,
        principal: Principal,
        watched: Watched,
    ) -> None:
        token = headers.get(b"mcp-session-id")
        if token is None or scope["method"] not in ("GET", "DELETE"):
            raise MethodNotAllowed("Send requests with POST.")
        name = token.decode("latin-1").strip()
        if scope["method"] == "DELETE":
            self._sessions.end(name, principal)
            await send_json(send, 204, b"")
            return
        session = self._sessions.open(name, principal)
        if not accepts(headers.get(b"accept"))[1]:
            raise NotAcceptable("What comes by GET is an event stream: accept text/event-stream.")
        dialect = self._dialects.negotiate(session.negotiated.version)
        reply = Reply(send, receive, watched, dialect, None, streams=True, keep_alive=self._limits.keep_alive)
        last_event = headers.get(b"last-event-id")
        with self._listening(watched):
            if last_event is not None:
                await streams.take_up(session, last_event.decode("latin-1").strip(), reply)
            else:
                await streams.listen(self._host.changes, session, watched, reply)

    @contextmanager
    def _listening(self, watched: Watched) -> Iterator[None]:
        """Count a stream that has no end of its own; raises `Busy`."""
        if self._streams >= self._limits.streams:
            raise Busy("The server is at its limit of listeners: try again later.", retry_after=30)
        watched.deadline = float("inf")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"A request has {most} bytes at most.")
