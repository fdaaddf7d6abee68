"""The ASGI app of the console: guard, sign-in, then the page's files, the API, or a stream of events.

Knows the parts of the console only as routes. Mounts under any prefix.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from antiphon.console.apps.sandbox import Sandbox
from antiphon.console.assets import Assets
from antiphon.console.features import create_features
from antiphon.console.guard import ConsoleGuard, security_headers
from antiphon.console.live import Live
from antiphon.console.responses import problem_of, response_of, send_events, start_events
from antiphon.console.routes import (
    ConsoleRequest,
    ConsoleUser,
    EventStream,
    Feature,
    Problem,
    Route,
    RouteTable,
)
from antiphon.console.sign_in import COOKIE_SECONDS, SignIn
from antiphon.console.sources import Sources
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.asgi import Receive, Scope, Send
from antiphon.transport.server.http.headers import check_head, read_headers
from antiphon.transport.server.http.router import HttpResponse
from antiphon.version import VERSION

__all__ = ["ConsoleApp"]

PAGES = {"inbox": "Inbox", "tasks": "Tasks", "workers": "Workers", "workbench": "Workbench"}
"""The first segments of the addresses that show the page."""
_MAX_STREAMS = 200
_MAX_STREAMS_PER_USER = 24
_MAX_FORM_BYTES = 16 * 1024
_MAX_COOKIES = 8
"""How many cookies of the console's name are tried."""
_SECURE_PREFIX = "__Secure-"
"""Browsers accept a cookie of such a name over TLS only."""
CHECK_SECONDS = 15.0
"""How often a stream checks that its person is still signed in, and how long the check may take."""
_OPERATOR_ROLE = "You see and change everybody’s tasks."
_PERSON_ROLE = "You see your own tasks, and the questions that you may answer."


class ConsoleApp:
    """Serves the console. `hosts` are the Host headers that it has.

    `sandbox_url` is the address on another host name or port, of the same app, that shows MCP Apps. Raises
    `DefinitionError` for an address that cannot do so.
    """

    def __init__(
        self,
        sources: Sources,
        sign_in: SignIn,
        *,
        hosts: Collection[str] | None,
        path: str = "",
        sandbox_url: str | None = None,
        limits: Limits | None = None,
        features: Callable[[Sources, Live], Sequence[Feature]] = create_features,
    ) -> None:
        self.path = path
        """Where a server mounts the console; empty if the console is the only app."""
        self.sources = sources
        self.sign_in = sign_in
        self.live = Live()
        self._guard = ConsoleGuard(hosts)
        self._sandbox = None if sandbox_url is None else Sandbox(sandbox_url, self._guard)
        self._headers = security_headers(None if self._sandbox is None else self._sandbox.origin)
        sources.use_sandbox(self._sandbox)
        self._limits = Limits() if limits is None else limits
        self._assets = Assets()
        self.features = features(sources, self.live)
        self._routes = RouteTable(
            [
                Route("GET", "/api/session", self._session),
                Route("POST", "/api/sign-in-links", self._create_link, operators=True),
                Route("GET", "/api/live", self._listen),
                *(route for feature in self.features for route in feature.routes()),
            ]
        )
        self.failure: Exception | None = None
        """Why the console did not start, or `None`."""
        self._opening = asyncio.Lock()
        self._is_open = False
        self.streams: dict[asyncio.Task[Any], ConsoleRequest] = {}

    async def open(self) -> None:
        """Open the sources and the parts; raises `StoreUnavailable`. A second call does nothing."""
        async with self._opening:
            if self._is_open:
                return
            self.live.reopen()
            try:
                await self.sources.open()
                for feature in self.features:
                    if (start := getattr(feature, "open", None)) is not None:
                        await start()
            except BaseException:
                await self.sources.close()
                raise
            self._is_open = True

    def end_streams(self) -> None:
        """End the streams of all pages, because the process is about to stop."""
        self.live.close()
        for stream in self.streams:
            stream.cancel()

    async def close(self) -> None:
        """End all streams, and close the parts and the sources."""
        self.end_streams()
        if self._is_open:
            self._is_open = False
            for feature in reversed(self.features):
                if (stop := getattr(feature, "close", None)) is not None:
                    await stop()
            await self.sources.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            sandbox = self._sandbox
            if sandbox is None or not await sandbox.handle(scope, receive, send):
                await self._respond(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.open()
                except Exception as error:
                    self.failure = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = asyncio.timeout(self._limits.call_timeout)
        value: Any
        try:
            request, segments = self._read(scope, receive)
            if segments is None:
                value = HttpResponse(b"", status=308, headers={"location": _last(scope["path"]) + "/"})
            else:
                async with limit:
                    value = await self._serve(request, segments)
        except Exception as error:
            is_late = isinstance(error, TimeoutError) and limit.expired()
            problem = Problem(504, "This took too long. Try again.") if is_late else problem_of(error)
            value = response_of({"message": problem.message, "fields": problem.fields})
            value.status = problem.status
        if isinstance(value, EventStream):
            await self._stream(request, value, send, receive)
            return
        response = response_of(value)
        response.headers = {**self._headers, **response.headers}
        timeout = self._limits.body_timeout
        await response.send(send, receive, timeout=timeout, head=scope["method"] == "HEAD")

    def _read(self, scope: Scope, receive: Receive) -> tuple[ConsoleRequest, list[str] | None]:
        """Return the request, and the segments of its path; `None` for the prefix without a slash."""
        check_head(scope, self._limits)
        path, root = scope["path"], scope.get("root_path", "").rstrip("/")
        path = path.removeprefix(root) if root else path
        request = ConsoleRequest(
            scope,
            read_headers(scope["headers"]),
            path,
            receive,
            max_bytes=self._limits.max_body_bytes,
            timeout=self._limits.body_timeout,
        )
        server = scope.get("server")
        request.server = None if server is None else str(server[0])
        # A task's id may contain an encoded slash, so the segments are those of the raw path.
        raw = scope.get("raw_path") or scope["path"].encode()
        segments = raw.partition(b"?")[0].decode("latin-1").split("/")[1 + root.count("/") :]
        return request, [unquote(each) for each in segments] or None

    async def _serve(self, request: ConsoleRequest, segments: list[str]) -> Any:
        first, depth = segments[0], len(segments) - 1
        is_page = first in (*PAGES, "", "sign-in")
        self._guard.check(request.method, request.headers, navigates=is_page, server=request.server)
        if segments == ["sign-in"]:
            return await self._sign_in(request)
        if segments == ["sign-out"]:
            return self._sign_out(request)
        if first not in ("api", *PAGES, ""):
            found = self._assets.find("/".join(segments), request.headers.get("if-none-match"))
            if found is None or request.method not in ("GET", "HEAD"):
                raise Problem(404, "There is nothing at this address.")
            return found
        user = await self.sign_in.user(_cookies(request), request.headers)
        if is_page:
            if request.method not in ("GET", "HEAD"):
                raise Problem(405, "Use GET for this address.")
            if user is not None:
                return self._assets.page("index.html", depth)
            if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                return self._assets.page("again.html", depth)  # a link of another page: the cookie is missing
            return self._assets.page(self._sign_in_page, depth, status=401)
        if user is None:
            raise Problem(401, "You are not signed in, or no longer. Reload the page.")
        request.user = user
        await self.open()
        return await self._call(request, segments)

    async def _call(self, request: ConsoleRequest, segments: list[str]) -> Any:
        method = "GET" if request.method == "HEAD" else request.method
        found = self._routes.find(method, segments)
        if found is None or (found[0].operators and not request.user.may_operate):
            raise Problem(404, "There is nothing at this address.")
        route, request.params = found
        if route.writes and not request.user.may_write:
            raise Problem(403, "This console is read-only.")
        value = await route.handler(request)
        if isinstance(value, EventStream):
            names = [each.user.name for each in self.streams.values()]
            if len(names) >= _MAX_STREAMS or names.count(request.user.name) >= _MAX_STREAMS_PER_USER:
                raise Problem(503, "Too many pages of the console are open. Close some.")
        return value

    async def _stream(
        self, request: ConsoleRequest, stream: EventStream, send: Send, receive: Receive
    ) -> None:
        """Send a stream of events, while the person is signed in. `end_streams` cancels its task."""
        await start_events(self._headers, send)
        sending = asyncio.create_task(send_events(stream, send, receive, timeout=self._limits.body_timeout))
        self.streams[sending] = request
        try:
            while not sending.done():
                await asyncio.wait({sending}, timeout=_seconds_to_check(request.user))
                if not sending.done() and not await self._is_signed_in(request):
                    sending.cancel()
                    await asyncio.wait({sending})
            if sending.cancelled():  # the console stops, or the person has to sign in again
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                sending.result()
        finally:
            del self.streams[sending]
            sending.cancel()

    async def _is_signed_in(self, request: ConsoleRequest) -> bool:
        """Return whether the person who sent a request is still signed in, with the same rights."""
        known, principal = request.user, request.user.principal
        if principal is not None and principal.expires_at and principal.expires_at <= time.time():
            return False
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                user = await self.sign_in.user(_cookies(request), request.headers)
        except Exception as error:  # the page finds out why when it connects again
            problem_of(error)
            return False
        return user is not None and (user.rights, user.may_operate) == (known.rights, known.may_operate)

    # Signing in

    @property
    def _sign_in_page(self) -> str:
        return "sign_in.html" if self.sign_in.takes_tokens else "link.html"

    async def _sign_in(self, request: ConsoleRequest) -> HttpResponse:
        """Sign a browser in, with the token of a link (GET) or of the server (POST)."""
        if request.method == "GET":
            token = request.query.get("token", "")
            secret = self.sign_in.redeem_link(token) if token else None
            if secret is None:
                return self._assets.page(self._sign_in_page, 0, status=401)
        elif request.method == "POST":
            body = await request.body()
            if len(body) > _MAX_FORM_BYTES:
                raise Problem(413, "This is too long for a token.")
            form = dict(parse_qsl(body.decode("latin-1")))
            try:
                secret = await self.sign_in.redeem_token(form.get("token", ""), request.headers)
            except Problem as problem:
                reason = "long" if problem.status == 413 else "refused"
                return HttpResponse(b"", status=303, headers={"location": f"sign-in?{reason}"})
        else:
            raise Problem(405, "Use GET or POST for this address.")
        return HttpResponse(
            b"",
            status=303,
            headers={
                "location": "./",
                "set-cookie": self._set_cookie(request, secret, COOKIE_SECONDS),
                "cache-control": "no-store",
            },
        )

    def _sign_out(self, request: ConsoleRequest) -> HttpResponse:
        if request.method != "POST":
            raise Problem(405, "Use POST for this address.")
        cookies = _cookies(request)
        for cookie in cookies:
            self.sign_in.sign_out(cookie)
        for stream, opened in self.streams.items():
            if not set(cookies).isdisjoint(_cookies(opened)):
                stream.cancel()
        return HttpResponse({}, headers={"set-cookie": self._set_cookie(request, "", 0)})

    def _set_cookie(self, request: ConsoleRequest, value: str, seconds: int) -> str:
        # Without a path, the cookie belongs to the folder of the request, which is the one of the console.
        cookie = f"{_cookie_name(request)}={value}; HttpOnly; SameSite=Strict; Max-Age={seconds}"
        is_secure = request.headers.get("origin", "").startswith("https:")
        return f"{_SECURE_PREFIX}{cookie}; Secure" if is_secure else cookie

    # The API that every page needs

    async def _session(self, request: ConsoleRequest) -> Any:
        """Return who looks, and at what."""
        user = request.user
        role = _OPERATOR_ROLE if user.may_operate else _PERSON_ROLE
        role = role if user.may_write else f"{role} This console is read-only."
        return {
            "version": VERSION,
            "user": {"name": user.name, "role": role, "isLocal": user.principal is None},
            "pages": {path: name for path, name in PAGES.items() if user.may_operate or path != "workers"},
            "home": "inbox" if self.sources.stores else "workbench",
            "mayOperate": user.may_operate,
            "mayWrite": user.may_write,
            "stores": [{"id": each.id, "name": each.name} for each in self.sources.stores.values()],
            "servers": [
                {"id": each.id, "name": each.name, "kind": each.kind, "isAdded": each.is_added}
                for each in self.sources.servers.values()
            ],
            "addsServers": self.sources.adds_servers and user.may_operate and user.may_write,
            "sandbox": None if self._sandbox is None else self._sandbox.origin,
        }

    async def _create_link(self, request: ConsoleRequest) -> Any:
        """Return the address that signs another browser in."""
        if not self.sign_in.makes_links or request.user.principal is not None:
            raise Problem(404, "There is nothing at this address.")
        return {"path": f"sign-in?token={self.sign_in.create_link()}"}

    async def _listen(self, request: ConsoleRequest) -> EventStream:
        return EventStream(self.live.listen())


def _seconds_to_check(user: ConsoleUser) -> float:
    """Return when a stream has to check its person: regularly, and when the person's token expires."""
    expires_at = None if user.principal is None else user.principal.expires_at
    return min(CHECK_SECONDS, max(0.0, expires_at - time.time())) if expires_at else CHECK_SECONDS


def _cookie_name(request: ConsoleRequest) -> str:
    """Return the name of the cookie. Browsers share cookies between the ports of a host."""
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"antiphon-console-{port}" if port.isdecimal() else "antiphon-console"


def _cookies(request: ConsoleRequest) -> list[str]:
    """Return the values of the console's cookies. Other programs of the host may have set some.

    Only pages over TLS can set a cookie with the secure prefix, so such a cookie excludes the others.
    """
    name, found, secure = _cookie_name(request), [], []
    for pair in request.headers.get("cookie", "").split(";"):
        given, _, value = pair.strip().partition("=")
        if given == name:
            found.append(value)
        elif given == _SECURE_PREFIX + name:
            secure.append(value)
    return (secure or found)[:_MAX_COOKIES]


def _last(path: str) -> str:
    return path.rpartition("/")[2] or "."
