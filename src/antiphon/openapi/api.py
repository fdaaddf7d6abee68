"""The API behind a server: sends requests to it, with the headers of the author, and reads the answers.

Owns the connection, the deadline, the redirects and the bound of an answer. It must not know tools.
"""

from __future__ import annotations

import asyncio
import inspect
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from antiphon.errors import DefinitionError, Failure
from antiphon.openapi.asgi_client import AsgiClient, running_lifespan
from antiphon.openapi.credentials import cookie_names, secrets_of
from antiphon.openapi.options import Headers
from antiphon.openapi.requests import ApiRequest
from antiphon.printable import redacted_url
from antiphon.runtime.execution.context import Context
from antiphon.runtime.providers import Provider
from antiphon.transport.client.http_client import HttpClient, HttpFailure, HttpResponse, http_client
from antiphon.version import VERSION

__all__ = ["Answer", "Api", "address_of", "check_base_url", "origin_of", "sets_of"]

_MAX_REDIRECTS = 5
_IN_A_URL = "%/:?=&+~!$,;'()*@[]"
"""The characters that a URL has besides letters and digits."""
_SAFE_METHODS = ("GET", "QUERY")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API, read to its end."""

    status: int
    content_type: str
    body: bytes
    url: str
    """The address of the request, without its query and without credentials."""
    link: str = ""
    """The header `Link`."""
    retry_after: str = ""
    location: str = ""
    """Where the content is, if that is another origin, to which no request was sent."""
    secrets: tuple[str, ...] = ()
    """The texts that no message may repeat; none for a success."""

    @property
    def is_success(self) -> bool:
        """Whether the status says that the request succeeded."""
        return 200 <= self.status < 300

    @property
    def phrase(self) -> str:
        """The status with its name, such as `404 Not Found`."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)


class Api(Provider):
    """An API, as long as its server runs."""

    def __init__(
        self,
        *,
        client: Any = None,
        app: Any = None,
        headers: Headers | None = None,
        timeout: float = 30.0,
        max_response_bytes: int = 4 * 1024 * 1024,
        app_lifespan: bool = True,
    ) -> None:
        self._client = client
        self._app = app
        self._app_lifespan = app_lifespan
        self._headers = headers
        self._timeout = timeout
        self._max_bytes = max_response_bytes
        self._http: HttpClient | None = None
        own = getattr(client, "headers", None)
        defaults = {str(name).lower(): str(value) for name, value in own.items()} if own is not None else {}
        self._fixed = {"accept-encoding": "identity"}
        if client is None:
            self._fixed["user-agent"] = f"antiphon/{VERSION}"
        self._keeps_accept = defaults.get("accept", "*/*") != "*/*"
        if headers is not None and not callable(headers):
            _check_headers(headers)
        if type(max_response_bytes) is not int or max_response_bytes < 1:
            raise DefinitionError(
                f"max_response_bytes={max_response_bytes!r} is not a size. Pass a number of bytes from 1 on, "
                "such as 4 * 1024 * 1024."
            )
        if client is not None and not _is_http_client(client):
            raise DefinitionError(
                f"client=: a {type(client).__name__} is not an HTTP client. Pass an httpx2.AsyncClient or an "
                "aiohttp.ClientSession."
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the connections, or run the lifespan of the app."""
        async with AsyncExitStack() as stack:
            if self._app is not None:
                state: Mapping[str, Any] = {}
                if self._app_lifespan:
                    state = await stack.enter_async_context(running_lifespan(self._app))
                self._http = AsgiClient(self._app, state)
            else:
                # Callers share the connections. A cookie that the API sets for one is not for the others.
                self._http = http_client(http=self._client, cookies=False)
            stack.push_async_callback(self._http.close)
            yield

    async def send(self, base_url: str, request: ApiRequest, accept: str, context: Context) -> Answer:
        """Send a request and return the answer, whatever its status is.

        Raises `Failure` if the API cannot be reached, takes too long, or answers with too many bytes.
        """
        given = self._headers
        if callable(given):
            value = given(context)
            given = await value if inspect.isawaitable(value) else value
            _check_headers(given)
        own = {name.lower(): value for name, value in (given or {}).items()}
        headers = {name.lower(): value for name, value in request.headers.items()} | self._fixed
        if "cookie" in headers:
            own = self._merge_cookies(headers, own)
        if not self._keeps_accept:
            headers["accept"] = accept
        url = f"{base_url}{request.path}"
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._exchange(request, url, headers | own)
                if answer.is_success:
                    return answer
                return replace(answer, secrets=secrets_of(given or {}, base_url, self._client))
        except TimeoutError:
            reason = f"did not answer within {self._timeout:g} seconds"
        except HttpFailure as error:
            reason = f"cannot be reached: {str(error).rstrip('.') or 'its address is invalid'}"
        unknown = "" if request.method in _SAFE_METHODS else " It is unknown whether the request took effect."
        raise Failure(f"The API at {redacted_url(base_url)} {reason}.{unknown} Try again later.")

    def _merge_cookies(self, headers: dict[str, str], own: dict[str, str]) -> dict[str, str]:
        """Return the author's headers with the cookies of a call, which replace none of the author's.

        The HTTP client adds its own cookies.
        """
        given = [pair.strip() for pair in own.get("cookie", "").split(";") if pair.strip()]
        taken = {pair.partition("=")[0] for pair in given} | cookie_names(self._client)
        cookies = [pair for pair in headers.pop("cookie").split("; ") if pair.partition("=")[0] not in taken]
        return {**own, "cookie": "; ".join(given + cookies)} if given or cookies else own

    async def _exchange(self, request: ApiRequest, url: str, headers: Mapping[str, str]) -> Answer:
        assert self._http is not None, "the server runs"
        method, body = request.method, request.body
        target = f"{url}?{request.query}" if request.query else url
        for _ in range(_MAX_REDIRECTS):
            response = await self._http.request(method, target, headers, body)
            try:
                moved = response.header("location") if 300 <= response.status < 400 else None
                if moved is None:
                    content = await self._read(response)
                    return self._answer(response, content, target)
                following = _joined(target, moved)
                changes = response.status in (301, 302, 303) and method not in _SAFE_METHODS
                # Another origin must not get the credentials, and a POST must not become a GET unasked.
                if origin_of(following) != origin_of(target) or (changes and response.status != 303):
                    return self._answer(response, b"", target, location=following)
                target = quote(following.partition("#")[0], safe=_IN_A_URL, errors="replace")
                if changes:
                    method, body = "GET", None
                    headers = {name: value for name, value in headers.items() if name != "content-type"}
            finally:
                await response.close()
        raise Failure(f"The API redirected the request {_MAX_REDIRECTS} times.")

    async def _read(self, response: HttpResponse) -> bytes:
        """Return the body of a response, decompressed; raises `Failure` if it is too large."""
        encoding = (response.header("content-encoding") or "identity").strip().lower()
        unpack = None
        if encoding in ("gzip", "deflate", "x-gzip"):
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif encoding != "identity":
            raise Failure("The API compressed its answer in a way that this server cannot read.")
        pieces: list[bytes] = []
        size = 0
        while piece := await response.read():
            if unpack is not None:
                try:
                    piece = unpack.decompress(piece, self._max_bytes + 1 - size)
                except zlib.error:
                    raise Failure("The API sent a compressed answer that is damaged.") from None
            size += len(piece)
            if size > self._max_bytes:
                raise Failure(
                    f"The API answered with more than {self._max_bytes} bytes. Ask for less, such as a "
                    "smaller page or fewer fields."
                )
            pieces.append(piece)
        if unpack is not None and pieces and not unpack.eof:
            raise Failure("The API sent a compressed answer that is not complete.")
        return b"".join(pieces)

    def _answer(
        self,
        response: HttpResponse,
        body: bytes,
        url: str,
        *,
        location: str = "",
    ) -> Answer:
        return Answer(
            status=response.status,
            content_type=response.header("content-type") or "",
            body=body,
            url=redacted_url(url.partition("?")[0]),
            link=response.header("link") or "",
            retry_after=response.header("retry-after") or "",
            location=location,
        )


def address_of(client: Any) -> str | None:
    """Return the address that an HTTP client has for relative URLs, or `None` without one."""
    # A session of aiohttp does not show its address by a public name.
    found = getattr(client, "base_url", None) or getattr(client, "_base_url", None)
    return str(found or "") or None


def check_base_url(url: str) -> str:
    """Return the address of an API without a slash at its end; raises `DefinitionError`."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port
    except ValueError:
        valid = False
    if not valid or "#" in url or "{" in url or not url.isascii() or not url.isprintable() or " " in url:
        raise DefinitionError(
            f"base_url={redacted_url(url)!r} is not the address of an API. Write http:// or https://, the "
            "host and the path, without a query."
        )
    return url.rstrip("/")


def _is_http_client(client: Any) -> bool:
    """Return whether an object is an `AsyncClient` of httpx2 or httpx, or a session of aiohttp."""
    kinds = {(base.__module__.partition(".")[0], base.__name__) for base in type(client).__mro__}
    known = {("httpx2", "AsyncClient"), ("httpx", "AsyncClient"), ("aiohttp", "ClientSession")}
    return bool(kinds & known)


def sets_of(client: Any, headers: Headers | None) -> frozenset[tuple[str, str]]:
    """Return the headers, in lower case, and the query parameters that the author sets, with their places."""
    own = getattr(client, "headers", None)
    given = headers if isinstance(headers, Mapping) else {}
    names = (*(own if own is not None else ()), *given)
    query = getattr(client, "params", None) or ()
    return frozenset(
        {*(("header", str(name).lower()) for name in names), *(("query", str(name)) for name in query)}
    )


def _check_headers(headers: Any) -> None:
    """Raise `DefinitionError` for headers that HTTP cannot carry. The message does not quote a value."""
    if not isinstance(headers, Mapping):
        raise DefinitionError(f"headers: a {type(headers).__name__} is not a mapping of names and values.")
    for name, value in headers.items():
        valid = isinstance(name, str) and isinstance(value, str) and name.isascii() and value.isascii()
        if (
            not valid
            or not name.isprintable()
            or not value.isprintable()
            or not name
            or set(name) & {" ", ":"}
        ):
            raise DefinitionError(
                f"headers: the header {str(name)[:100]!r} is invalid. A name and a value are one line of "
                "ASCII characters each."
            )


def _joined(url: str, location: str) -> str:
    """Return where a redirect leads; the location itself if it is not a URL."""
    try:
        return urljoin(url, location)
    except ValueError:
        return location


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Return the scheme, the host and the port of a URL; `None` for a text that is no URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return parts.scheme, (parts.hostname or "").lower(), port
