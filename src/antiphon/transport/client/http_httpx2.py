"""The HTTP client on httpx2, for users who pass an `httpx2.AsyncClient` or an `httpx2.Auth`.

Nothing else imports httpx2, which is an extra. An `httpx.AsyncClient` has the same interface, and works too.
"""

from __future__ import annotations

import contextlib
import importlib
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from antiphon.log_records import redact_urls
from antiphon.transport.client.http_client import ConnectionClosed, HttpFailure, HttpResponse, InvalidUrl

if TYPE_CHECKING:
    import httpx2

__all__ = ["Httpx2Client"]

_MAX_IDLE_CONNECTIONS = 100


class Httpx2Client:
    """Sends requests with httpx2. It closes the `AsyncClient` only if it created it."""

    def __init__(
        self,
        http: httpx2.AsyncClient | None,
        *,
        auth: httpx2.Auth | None,
        tls: ssl.SSLContext | None,
        proxy: str | Literal[False] | None,
        connect_timeout: float,
        is_bare: bool = False,
    ) -> None:
        is_httpx = any(base.__module__.partition(".")[0] == "httpx" for base in type(http).__mro__)
        self._library: Any = importlib.import_module("httpx" if is_httpx else "httpx2")
        redact_urls(self._library.__name__)  # it logs the URL of each request
        self._timeout = self._library.Timeout(None, connect=connect_timeout)
        self._auth = self._library.USE_CLIENT_DEFAULT if auth is None and not is_bare else auth
        self._is_bare = is_bare
        self._owned = http is None
        self._http = http or self._library.AsyncClient(
            timeout=self._timeout,
            limits=self._library.Limits(
                max_connections=None, max_keepalive_connections=_MAX_IDLE_CONNECTIONS
            ),
            verify=tls or True,
            proxy=proxy or None,
            trust_env=proxy is not False,
        )

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the response, still unread."""
        try:
            # `build_request` adds the default headers, cookies and parameters of the client.
            if not self._is_bare and self._http.cookies:
                headers = self._with_cookies(url, headers)
            request = (
                self._library.Request(
                    method,
                    url,
                    content=body,
                    headers=dict(headers),
                    extensions={"timeout": self._timeout.as_dict()},
                )
                if self._is_bare
                else self._http.build_request(
                    method,
                    url,
                    content=body,
                    params=self._own_query(url),
                    headers=dict(headers),
                    timeout=self._timeout,
                )
            )
            # The client of a user may follow redirects. The headers of a request are for one server alone.
            response = await self._http.send(request, stream=True, auth=self._auth, follow_redirects=False)
            return _Response(response, self._library)
        except self._library.InvalidURL:  # its message may quote a password
            raise InvalidUrl from None
        except self._library.RemoteProtocolError as error:
            raise ConnectionClosed(str(error) or type(error).__name__) from error
        except self._library.TransportError as error:
            raise HttpFailure(str(error) or type(error).__name__) from error

    def _with_cookies(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers whose cookies are joined with those of the client, which they would replace."""
        name = next((name for name in headers if name.lower() == "cookie"), None)
        if name is None:
            return headers
        given = headers[name]
        named = {pair.partition("=")[0].strip() for pair in given.split(";")}
        kept = self._http.build_request("GET", url).headers.get("cookie", "")
        pairs = [pair.strip() for pair in kept.split(";") if pair.partition("=")[0].strip() not in named]
        return {**headers, name: "; ".join([*filter(None, pairs), given])}

    def _own_query(self, url: str) -> tuple[tuple[str, str], ...] | None:
        """Return the query of a URL for a client with default parameters, which would replace it.

        Without such parameters, the URL is sent as it is. A default parameter wins over one of the URL.
        """
        defaults = self._http.params
        if not defaults:
            return None
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        return tuple((name, value) for name, value in pairs if name not in defaults)

    async def close(self) -> None:
        """Close the `AsyncClient`, unless it was passed in."""
        if self._owned:
            await self._http.aclose()


class _Response:
    """A response of httpx2."""

    __slots__ = ("_chunks", "_library", "_response", "status")

    def __init__(self, response: httpx2.Response, library: Any) -> None:
        self._library = library
        self._response = response
        self._chunks = response.aiter_raw()
        self.status = response.status_code

    def header(self, name: str) -> str | None:
        """Return the value of a header; several are joined with commas."""
        found: str | None = self._response.headers.get(name)
        return found

    async def read(self) -> bytes:
        """Return the next bytes that are not empty."""
        try:
            async for chunk in self._chunks:
                if chunk:
                    return chunk
        except self._library.StreamError:  # the response was closed, or read before
            raise HttpFailure("the response is closed") from None
        except self._library.TransportError as error:
            raise HttpFailure(str(error) or type(error).__name__) from error
        return b""

    async def close(self) -> None:
        """Close the response."""
        with contextlib.suppress(self._library.TransportError):
            await self._chunks.aclose()
            await self._response.aclose()
