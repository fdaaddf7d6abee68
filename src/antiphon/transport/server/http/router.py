"""Pages beside the MCP endpoint: an author's own routes, the probes, and documents for everybody.

The router sees every request first. A request whose path is no route goes to the endpoint.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from antiphon.errors import BodyTooLarge, Busy, DefinitionError, InvalidRequest, RequestError
from antiphon.runtime.budget import share_of
from antiphon.runtime.execution.executor import share_threads
from antiphon.runtime.execution.failures import is_failure
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.asgi import Receive, Send
from antiphon.transport.server.http.connections import stranger_at
from antiphon.transport.server.http.guard import Guard
from antiphon.transport.server.http.headers import check_head, read_headers
from antiphon.transport.server.http.unread import send_body

__all__ = ["HttpRequest", "HttpResponse", "Router", "Routes"]

logger = logging.getLogger("antiphon")

Handler: TypeAlias = Callable[["HttpRequest"], Any]

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


class HttpRequest:
    """A request to one of the server's own pages."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        path: str,
        receive: Receive,
        *,
        max_bytes: int,
        timeout: float,
    ) -> None:
        self.method: str = scope["method"]
        """The HTTP method, in upper case."""
        self.path = path
        """The path, without the prefix under which the app is mounted."""
        self.query: dict[str, str] = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        """The query parameters. If a name occurs several times, the last value counts."""
        self.headers: Mapping[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers.items()
        }
        """The headers, with lower-case names."""
        self.client: tuple[str, int] | None = scope.get("client")
        """The host and port of the client, if the ASGI server knows them."""
        self._receive = receive
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._body: bytes | None = None

    async def body(self) -> bytes:
        """Return the body.

        Raises `BodyTooLarge` over `Limits.max_body_bytes`, and `InvalidRequest` if the body does not arrive
        in time.
        """
        if self._body is None:
            try:
                async with asyncio.timeout(self._timeout):
                    self._body = await self._read()
            except TimeoutError:
                raise InvalidRequest("The body did not arrive in time.") from None
        return self._body

    async def json(self) -> Any:
        """Return the body, decoded from JSON; raises `InvalidRequest` if it is not JSON."""
        try:
            return msgspec.json.decode(await self.body())
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"The body is not JSON: {error}.") from None
        except RecursionError:
            raise InvalidRequest("The body is not JSON that can be read: it is nested too deeply.") from None

    async def _read(self) -> bytes:
        parts = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("The client closed the connection.")
            parts += message.get("body", b"")
            if len(parts) > self._max_bytes:
                raise BodyTooLarge(f"A body has at most {self._max_bytes} bytes.")
            if not message.get("more_body", False):
                return bytes(parts)


class HttpResponse:
    """A response of one of the server's own pages.

    `body` is text, bytes, or any other value, which is sent as JSON. The media type follows from the body
    unless you pass `media_type`.
    """

    def __init__(
        self,
        body: str | bytes | Any = b"",
        *,
        status: int = 200,
        media_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.headers = dict(headers or {})
        if isinstance(body, str):
            self.body, kind = body.encode(), _TEXT
        elif isinstance(body, bytes | bytearray):
            self.body, kind = bytes(body), "application/octet-stream"
        else:
            self.body, kind = msgspec.json.encode(body), _JSON
        self.media_type = media_type or kind

    async def send(self, send: Send, receive: Receive, *, timeout: float, head: bool = False) -> None:
        """Send the response; without the body for a HEAD request.

        A client that reads nothing for `timeout` seconds is disconnected.
        """
        lines = [(b"content-length", b"%d" % len(self.body))]
        if self.body:
            lines.append((b"content-type", self.media_type.encode("latin-1")))
        lines += [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": lines})
        await send_body(send, receive, b"" if head else self.body, timeout)


class Routes:
    """The pages of one server, by path and method."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Handler]] = {}
        self._reserved: set[str] = set()

    def reserve(self, path: str) -> None:
        """Keep a path for the MCP endpoint; raises `DefinitionError` if a page has it already."""
        self._reserved.update((path.rstrip("/"), path.rstrip("/") + "/"))
        for taken in self._reserved & self.pages.keys():
            raise _hides_endpoint(taken)

    def add(self, path: str, methods: Sequence[str], handler: Handler) -> None:
        """Serve a path with a function; raises `DefinitionError`."""
        if not path.startswith("/") or "{" in path:
            raise DefinitionError(
                f"The path {path!r} of a route must begin with a slash, and cannot have variables."
            )
        if isinstance(methods, str) or not methods:
            raise DefinitionError(
                f'The methods of the route {path!r} must be a list, such as methods=["GET", "POST"].'
            )
        if path in self._reserved:
            raise _hides_endpoint(path)
        page = self.pages.setdefault(path, {})
        for method in (name.upper() for name in methods):
            if method in page:
                raise DefinitionError(f"There is already a route for {method} {path}.")
            page[method] = handler


class PublicPages(Protocol):
    """The documents that everybody may read, beside an endpoint."""

    routes: Routes
    """The pages."""
    endpoint: str
    """The path of the endpoint."""

    def note_mount(self, root: str) -> None:
        """Note that the app is mounted at a path."""


class Page:
    """The handlers of one path, by method, and how they are served."""

    __slots__ = ("handlers", "is_own", "is_public")

    def __init__(
        self, handlers: Mapping[str, Handler], *, is_own: bool = False, is_public: bool = False
    ) -> None:
        self.handlers = handlers
        self.is_own = is_own
        """Whether the page is the author's: guarded, counted, and served by a started server."""
        self.is_public = is_public
        """Whether web pages of every site may read the page."""


class Router:
    """Serves pages; `find` says which requests are for them.

    All pages but the `metadata` are guarded against foreign hosts and origins. The author's pages (`own`)
    are bounded in time, and counted. The pages of the library (`probes` and `metadata`) respond whatever the
    author's pages do.
    """

    def __init__(
        self,
        limits: Limits,
        in_thread: Callable[[Callable[..., Any], dict[str, Any]], Awaitable[Any]],
        *,
        own: Routes,
        probes: Routes,
        guard: Guard | None = None,
        start: Callable[[], Awaitable[None]] | None = None,
        metadata: PublicPages | None = None,
    ) -> None:
        self._limits = limits
        self._in_thread = in_thread
        self._own = own.pages
        self._probes = probes.pages
        self._metadata = metadata
        self._public = {} if metadata is None else metadata.routes.pages
        self._guard = guard
        self._start = start
        self._running = 0
        self._most_of_share = share_of(limits.max_calls, limits.principal_share)
        self._running_of: Counter[str] = Counter()
        """How many requests of each network address run."""

    @property
    def has_pages(self) -> bool:
        """Whether there is any page."""
        return bool(self._own or self._probes or self._public)

    def find(self, scope: Mapping[str, Any]) -> Page | None:
        """Return the page of a request, or `None` if its path is no page."""
        if self._metadata is not None:
            if root := scope.get("root_path"):
                self._metadata.note_mount(root)
            elif scope["path"] == self._metadata.endpoint:
                return None  # most requests are for the endpoint
        path = _path(scope)
        if (handlers := self._own.get(path)) is not None:
            return Page(handlers, is_own=True)
        if (handlers := self._probes.get(path)) is not None:
            return Page(handlers)
        if (handlers := self._public.get(path)) is not None:
            return Page(handlers, is_public=True)
        return None

    async def serve(self, page: Page, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request for a page."""
        method = scope["method"]
        handler = page.handlers.get(method) or (page.handlers.get("GET") if method == "HEAD" else None)
        try:
            headers = self._check(page, scope)
        except RequestError as error:
            response = _refusal(error)
        else:
            if handler is None:
                allowed = ", ".join(sorted(page.handlers))
                response = HttpResponse("Method not allowed.\n", status=405, headers={"allow": allowed})
            else:
                limits = self._limits
                request = HttpRequest(
                    scope,
                    headers,
                    _path(scope),
                    receive,
                    max_bytes=limits.max_body_bytes,
                    timeout=limits.body_timeout,
                )
                share = stranger_at(scope.get("client")).share
                response = await self._respond(page, handler, request, share)
        await response.send(send, receive, head=method == "HEAD", timeout=self._limits.body_timeout)

    def _check(self, page: Page, scope: Mapping[str, Any]) -> Mapping[bytes, bytes]:
        """Return the headers of a request for a page; raises `RequestError` if the request is refused."""
        check_head(scope, self._limits)
        headers = read_headers(scope["headers"])
        if self._guard is not None and not page.is_public:
            check = self._guard.check_page if page.is_own else self._guard.check_probe
            check(scope, headers)
        return headers

    async def _respond(self, page: Page, handler: Handler, request: HttpRequest, share: str) -> HttpResponse:
        limit, work = asyncio.timeout(self._limits.call_timeout), Supervised.here()
        try:
            async with limit:
                value = await (self._run_own(handler, request, share) if page.is_own else handler(request))
            return value if isinstance(value, HttpResponse) else HttpResponse(value)
        except RequestError as error:
            return _refusal(error)
        except BaseException as error:
            if not is_failure(error, work):
                raise
            if isinstance(error, TimeoutError) and limit.expired():
                logger.warning("The page %s did not finish in time.", request.path)
                return HttpResponse("The server did not finish this page in time.\n", status=503)
            logger.exception("The page %s failed.", request.path)
            return HttpResponse(
                "The server failed to serve this page. Its log has the details.\n", status=500
            )

    async def _run_own(self, handler: Handler, request: HttpRequest, share: str) -> Any:
        if self._running >= self._limits.max_calls:
            raise Busy("The server is at its limit of requests: try again.")
        if share and self._running_of[share] >= self._most_of_share:
            raise Busy("Your address is at its limit of requests: try again.")
        self._running += 1
        self._running_of[share] += 1
        share_threads(share)
        try:
            if self._start is not None:
                await self._start()
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
                return await handler(request)
            return await self._in_thread(lambda: handler(request), {})
        finally:
            self._running -= 1
            self._running_of[share] -= 1
            if not self._running_of[share]:
                del self._running_of[share]


def _refusal(error: RequestError) -> HttpResponse:
    return HttpResponse(f"{error.message}\n", status=error.status, headers=dict(error.headers))


def _hides_endpoint(path: str) -> DefinitionError:
    return DefinitionError(f"The route {path} would hide the MCP endpoint: choose another path.")


def _path(scope: Mapping[str, Any]) -> str:
    """Return the path of a request, without the prefix under which the app is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    return str(path.removeprefix(root) if root else path)
