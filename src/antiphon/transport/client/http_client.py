"""The seam between the client and the library that speaks HTTP for it, and the choice of that library.

An `HttpClient` sends one request and returns a response whose body is still unread. It follows no redirect,
decodes no body, and raises `HttpFailure` for everything that goes wrong below HTTP. It knows no MCP. Users
who pass nothing get `http_direct`; aiohttp and httpx2 are used for those who pass a client of theirs, and
httpx2 for its `Auth`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

__all__ = [
    "ConnectionClosed",
    "HttpClient",
    "HttpFailure",
    "HttpResponse",
    "InvalidUrl",
    "check_options",
    "gets_tokens",
    "http_client",
]


class HttpFailure(Exception):
    """A request that got no whole response. Its text is the reason, without the URL."""


class ConnectionClosed(HttpFailure):
    """The server closed the connection before it sent anything of a response."""


class InvalidUrl(HttpFailure):
    """A URL that no request can be sent to."""


class HttpResponse(Protocol):
    """One response, whose body is read piece by piece."""

    @property
    def status(self) -> int:
        """The status code."""

    def header(self, name: str) -> str | None:
        """Return the value of a header; `None` without one. Of several values, the first or all of them."""

    async def read(self) -> bytes:
        """Return the next bytes of the body as they came; empty at its end. Raises `HttpFailure`."""

    async def close(self) -> None:
        """Give the connection back if the body was read to its end, and close it if not. Raises nothing."""


class HttpClient(Protocol):
    """Sends requests, each on a connection of a pool."""

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the response once its headers are there; raises `HttpFailure`.

        A request is sent twice only if its method allows that. It has no deadline but that of connecting.
        """

    async def close(self) -> None:
        """Close the connections that belong to this client. Raises nothing, and may be called twice."""


def check_options(http: object, auth: object, tls: object, proxy: object) -> None:
    """Raise `ValueError` or `TypeError` for options that do not go together, before any library is imported.

    An object of a library exists only in a process that has imported the library.
    """
    if http is not None and not (_is(http, "aiohttp", "ClientSession") or _is(http, "httpx2", "AsyncClient")):
        raise TypeError(
            f"http= takes an aiohttp.ClientSession or an httpx2.AsyncClient, not a {type(http).__name__}."
        )
    if (
        auth is not None
        and not isinstance(auth, str)
        and not (gets_tokens(auth) or _is(auth, "httpx2", "Auth"))
    ):
        raise TypeError(
            f"auth= takes a bearer token, an OAuth or an httpx2.Auth, not a {type(auth).__name__}."
        )
    if _is(auth, "httpx2", "Auth") and _is(http, "aiohttp", "ClientSession"):
        raise ValueError("An httpx2.Auth does not work with an aiohttp.ClientSession: leave http= out.")
    if http is not None and (tls is not None or proxy is not None):
        raise ValueError("tls= and proxy= are for the client's own connections. Configure the http= client.")
    if isinstance(proxy, str) and urlsplit(proxy).scheme not in ("http", "https"):
        raise ValueError(
            "proxy= is not the address of an HTTP proxy, such as http://proxy:3128. "
            "For another kind of proxy, pass an http= client that supports it."
        )


def gets_tokens(auth: object) -> bool:
    """Return whether `auth` gets access tokens by itself, as `OAuth` does."""
    return hasattr(auth, "authorization")


def http_client(
    *,
    http: Any = None,
    auth: Any = None,
    tls: ssl.SSLContext | None = None,
    proxy: str | Literal[False] | None = None,
    connect_timeout: float = 30.0,
    is_bare: bool = False,
    cookies: bool = True,
) -> HttpClient:
    """Return a client in the running event loop. It does not close an `http` client that was passed in.

    `auth` is an `httpx2.Auth`; a token belongs to the headers. `proxy` is the address of a proxy, or `False`
    for none; without either, the environment names one. With `is_bare`, the client uses the connections of
    `http`, but not its default headers, its cookies and its credentials, which are for the server alone.
    Without `cookies`, connections of the client's own send no cookies that a server set.
    """
    if auth is not None or _is(http, "httpx2", "AsyncClient") or _is(http, "httpx", "AsyncClient"):
        from antiphon.transport.client.http_httpx2 import Httpx2Client

        return Httpx2Client(
            http, auth=auth, tls=tls, proxy=proxy, connect_timeout=connect_timeout, is_bare=is_bare
        )
    if http is None:
        from antiphon.transport.client.http_direct import DirectClient

        return DirectClient(tls=tls, proxy=proxy, connect_timeout=connect_timeout, cookies=cookies)
    from antiphon.transport.client.http_aiohttp import AiohttpClient

    return AiohttpClient(http, connect_timeout=connect_timeout, is_bare=is_bare)


def _is(value: object, library: str, name: str) -> bool:
    """Return whether a value is an instance of a library's class, without importing the library."""
    found = getattr(sys.modules.get(library), name, None)
    return found is not None and isinstance(value, found)
