"""The HTTP client on httpx2, for users who pass an `httpx2.AsyncClient` or an `httpx2.Auth`.

Nothing else imports httpx2, which is an extra.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Literal

import httpx2

from antiphon.log_records import redact_urls
from antiphon.transport.client.http_client import HttpFailure, HttpResponse, InvalidUrl

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
        redact_urls("httpx2")  # it logs the URL of each request
        self._timeout = httpx2.Timeout(None, connect=connect_timeout)
        self._auth = httpx2.USE_CLIENT_DEFAULT if auth is None and not is_bare else auth
        self._is_bare = is_bare
        self._owned = http is None
        self._http = http or httpx2.AsyncClient(
            timeout=self._timeout,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE_CONNECTIONS),
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
            request = (
                httpx2.Request(
                    method,
                    url,
                    content=body,
                    headers=dict(headers),
                    extensions={"timeout": self._timeout.as_dict()},
                )
                if self._is_bare
                else self._http.build_request(
                    method, url, content=body, headers=dict(headers), timeout=self._timeout
                )
            )
            # The client of a user may follow redirects. The headers of a request are for one server alone.
            return _Response(
                await self._http.send(request, stream=True, auth=self._auth, follow_redirects=False)
            )
        except httpx2.InvalidURL:  # its message may quote a password
            raise InvalidUrl from None
        except httpx2.TransportError as error:
            raise HttpFailure(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close the `AsyncClient`, unless it was passed in."""
        if self._owned:
            await self._http.aclose()


class _Response:
    """A response of httpx2."""

    __slots__ = ("_chunks", "_response", "status")

    def __init__(self, response: httpx2.Response) -> None:
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
        except httpx2.StreamError:  # the response was closed, or read before
            raise HttpFailure("the response is closed") from None
        except httpx2.TransportError as error:
            raise HttpFailure(str(error) or type(error).__name__) from error
        return b""

    async def close(self) -> None:
        """Close the response."""
        with contextlib.suppress(httpx2.TransportError):
            await self._chunks.aclose()
            await self._response.aclose()
