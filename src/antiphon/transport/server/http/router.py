"""Pages beside the MCP endpoint: an author's own routes, and the probes.

The router sees every request first. A request whose path is no route goes to the endpoint.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from antiphon.errors import BodyTooLarge, DefinitionError, InvalidRequest, RequestError
from antiphon.transport.server.http.asgi import Receive, Send
from antiphon.transport.server.http.guard import Guard

__all__ = ["HttpRequest", "HttpResponse", "Router", "Routes"]

logger = logging.getLogger("antiphon")

Handler: TypeAlias = Callable[["HttpRequest"], Any]

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


class HttpRequest:
    """A request to one of the server's own pages."""

    def __init__(
        self, scope: Mapping[str, Any], path: str, receive: Receive, *, max_bytes: int, timeout: float
    ) -> None:
        self.method: str = scope["method"]
        """The HTTP method, in upper case."""
        self.path = path
        """The path, without the prefix under which the app is mounted."""
        self.query: dict[str, str] = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        """The query parameters. If a name occurs several times, the last value counts."""
        self.headers: Mapping[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
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

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Send the response; without the body for a HEAD request."""
        lines = [(b"content-length", b"%d" % len(self.body))]
        if self.body:
            lines.append((b"content-type", self.media_type.encode("latin-1")))
        lines += [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": lines})
        await send({"type": "http.response.body", "body": b"" if head else self.body})


class Routes:
    """The pages of one server, by path and method."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Handler]] = {}

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
        page = self.pages.setdefault(path, {})
        for method in (name.upper() for name in methods):
            if method in page:
                raise DefinitionError(f"There is already a route for {method} {path}.")
            page[method] = handler


class Router:
    """Serves pages; `find` says which requests are for them."""

    def __init__(
        self,
        *routes: Routes,
        guard: Guard | None = None,
        max_bytes: int,
        timeout: float,
        in_thread: Callable[[Callable[..., Any], dict[str, Any]], Awaitable[Any]],
    ) -> None:
        self._routes = routes
        self._guard = guard
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._in_thread = in_thread

    def find(self, scope: Mapping[str, Any]) -> Mapping[str, Handler] | None:
        """Return the handlers of a path by method, or `None` if the path is no page."""
        for routes in self._routes:
            if routes.pages:
                page = routes.pages.get(_path(scope))
                if page is not None:
                    return page
        return None

    async def serve(
        self, page: Mapping[str, Handler], scope: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Answer a request for a page."""
        method = scope["method"]
        handler = page.get(method) or (page.get("GET") if method == "HEAD" else None)
        if handler is None:
            allowed = ", ".join(sorted(page))
            response = HttpResponse("Method not allowed.\n", status=405, headers={"allow": allowed})
        else:
            request = HttpRequest(
                scope, _path(scope), receive, max_bytes=self._max_bytes, timeout=self._timeout
            )
            response = await self._respond(handler, request, scope)
        await response.send(send, head=method == "HEAD")

    async def _respond(
        self, handler: Handler, request: HttpRequest, scope: Mapping[str, Any]
    ) -> HttpResponse:
        try:
            if self._guard is not None:
                self._guard.check_page(scope)
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
                value = await handler(request)
            else:
                value = await self._in_thread(lambda: handler(request), {})
            return value if isinstance(value, HttpResponse) else HttpResponse(value)
        except RequestError as error:
            return HttpResponse(f"{error.message}\n", status=error.status, headers=dict(error.headers))
        except Exception:
            logger.exception("The page %s failed.", request.path)
            return HttpResponse(
                "The server failed to serve this page. Its log has the details.\n", status=500
            )


def _path(scope: Mapping[str, Any]) -> str:
    """Return the path of a request, without the prefix under which the app is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    return str(path.removeprefix(root) if root else path)
