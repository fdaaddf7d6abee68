"""The HTTP client on aiohttp: for sessions that users pass, and for what `http_direct` does not do itself.

The clients of an event loop share a pool of connections, which keeps apart connections to different hosts,
through different proxies and with different TLS settings. It is closed with its last client. Each client has
cookies of its own, for load balancers that keep a caller at one server. The errors of aiohttp are not quoted
as they are, because some quote a URL with its secrets.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import aiohttp
from yarl import URL

from antiphon.log_records import clean_records
from antiphon.printable import printable, redacted_url
from antiphon.transport.client import http_connecting as connecting
from antiphon.transport.client.http_client import ConnectionClosed, HttpFailure, HttpResponse, InvalidUrl
from antiphon.transport.client.http_proxies import environment_proxy

__all__ = ["AiohttpClient"]

clean_records(("aiohttp.client", "aiohttp.internal"))  # they quote cookies

_CLOSE_SECONDS = 2.0
"""How long the pool waits until its connections are closed."""
_MAX_LINE_BYTES = 16 * 1024
"""How long the status line and each header of a response may be."""
_MAX_HEADERS = 128
_MAX_ROUTES = 16
"""For how many URLs a client remembers how to send requests to them."""
_MAX_STEPS = 10
"""How often closing a pool may yield when its event loop is closed already."""


class _Route(NamedTuple):
    """A URL, and how requests get there."""

    url: URL
    authorization: Mapping[str, str]
    """The header for the user name and password in the URL; empty without them."""
    proxy: URL | None


class AiohttpClient:
    """Sends requests with aiohttp. It does not close a session that was passed in."""

    def __init__(
        self,
        session: aiohttp.ClientSession | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | Literal[False] | None = None,
        connect_timeout: float = 30.0,
        is_bare: bool = False,
        cookies: bool = True,
    ) -> None:
        self._connect_timeout = connect_timeout
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        # A session of the user has TLS settings and proxies of its own, which these values leave as they are.
        self._tls = tls or (connecting.default_tls() if session is None else True)
        self._proxy = proxy if session is None else False
        self._routes: dict[str, _Route] = {}
        self._bare: aiohttp.ClientSession | None = None
        self._loop = asyncio.get_running_loop()
        self._last_request = self._loop.time()
        self._dropped: weakref.finalize[[aiohttp.ClientSession, _Pool], AiohttpClient] | None = None
        if session is None:
            pool = _Pool.acquire()
            jar = aiohttp.CookieJar(unsafe=True) if cookies else aiohttp.DummyCookieJar()
            session = aiohttp.ClientSession(connector=pool.connector, connector_owner=False, cookie_jar=jar)
            # A client that nobody closes must not make aiohttp report an unclosed session.
            self._dropped = weakref.finalize(self, _drop, session, pool)
        elif is_bare and not session.closed:
            session = self._bare = _bare_session(session)
        self._session = session

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the response, still unread."""
        now = self._loop.time()
        if now - self._last_request > connecting.QUIET_SECONDS:
            await connecting.see_closed_connections()
        self._last_request = now
        if self._session.closed:
            raise HttpFailure("the session is closed")
        try:
            route = self._routes.get(url) or self._find_route(url)
            if route.authorization:
                headers = {**headers, **route.authorization}
            return _Response(
                await self._session.request(
                    method,
                    route.url,
                    data=body,
                    headers=headers,
                    timeout=self._timeout,
                    allow_redirects=False,
                    raise_for_status=False,
                    auto_decompress=False,
                    max_line_size=_MAX_LINE_BYTES,
                    max_field_size=_MAX_LINE_BYTES,
                    max_headers=_MAX_HEADERS,
                    ssl=self._tls,
                    proxy=route.proxy,
                )
            )
        except aiohttp.InvalidURL:
            raise InvalidUrl from None
        except aiohttp.ConnectionTimeoutError:
            raise HttpFailure(f"connecting took more than {self._connect_timeout:g} s") from None
        except aiohttp.ServerDisconnectedError as error:
            raise ConnectionClosed(_reason(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise HttpFailure(_reason(error)) from None

    def add_cookies(self, cookies: Sequence[str], url: str) -> None:
        """Add cookies that a response had, as its headers."""
        self._session.cookie_jar.update_cookies_from_headers(cookies, URL(url))

    async def close(self) -> None:
        """Give up the client's share in the pool; the last client closes the pool."""
        if self._bare is not None:
            self._bare.detach()
        if self._dropped is not None and (given := self._dropped.detach()) is not None:
            _, _, (session, pool), _ = given
            session.detach()
            await pool.release()

    def _find_route(self, text: str) -> _Route:
        """Return how to reach a URL, and remember it; raises `HttpFailure`."""
        try:
            # A URL in ASCII is sent as the user wrote it: some are signed.
            url = URL(text, encoded=text.isascii() and text.isprintable() and " " not in text)
            if url.scheme not in ("http", "https") or not url.host or connecting.is_short_address(url.host):
                raise InvalidUrl
        except ValueError:  # its message may quote a password
            raise InvalidUrl from None
        authorization = {}
        if url.user is not None or url.password is not None:
            given = f"{url.user or ''}:{url.password or ''}".encode()
            authorization = {"authorization": f"Basic {base64.b64encode(given).decode()}"}
            url = url.with_user(None)
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        route = self._routes[text] = _Route(url.with_fragment(None), authorization, self._proxy_for(url))
        return route

    def _proxy_for(self, url: URL) -> URL | None:
        if self._proxy is False:
            return None
        address = self._proxy or environment_proxy(url.scheme, url.host or "", url.port)
        if address is not None and not address.startswith(("http://", "https://")):
            raise HttpFailure(
                f"the proxy {redacted_url(address)} of the environment is not an HTTP proxy; "
                "pass proxy=False, or an http= client that supports it"
            )
        return None if address is None else URL(address)


def _bare_session(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Return a session on the connections of another one, without its headers, cookies and credentials."""
    return aiohttp.ClientSession(
        connector=session.connector,
        connector_owner=False,
        trust_env=session.trust_env,
        cookie_jar=aiohttp.DummyCookieJar(),
        # A session does not tell what its proxy is.
        proxy=getattr(session, "_default_proxy", None),
        proxy_auth=getattr(session, "_default_proxy_auth", None),
    )


class _Response:
    """A response of aiohttp."""

    __slots__ = ("_content", "_response", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content
        self.status = response.status

    def header(self, name: str) -> str | None:
        """Return the first value of a header, and all challenges; `None` without one."""
        if name == "www-authenticate":
            return ", ".join(self._response.headers.getall(name, ())) or None
        return self._response.headers.get(name)

    async def read(self) -> bytes:
        """Return the bytes that have come, without copying them."""
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise HttpFailure(_reason(error)) from None

    async def close(self) -> None:
        """Give the connection back; aiohttp closes it if the body was not read to its end."""
        self._response.release()


class _Pool:
    """The connections of all clients in one event loop. Its size is the number of requests at once.

    The clients bound their requests themselves: in a pool with a bound, a response to a server would wait for
    the calls. Idle connections are closed after a few seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.users = 0
        self.connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=connecting.IDLE_SECONDS)

    @staticmethod
    def acquire() -> _Pool:
        """Return the pool of the running loop for one more client."""
        loop = asyncio.get_running_loop()
        pool = pools.get(loop)
        if pool is None or pool.connector.closed:
            pool = pools[loop] = _Pool(loop)
        pool.users += 1
        return pool

    async def release(self) -> None:
        """Close the connections if no other client uses the pool."""
        self.users -= 1
        if self.users:
            return
        if pools.get(self.loop) is self:
            del pools[self.loop]
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.connector.close(abort_ssl=True)
        except TimeoutError:  # a connection with unsent bytes, to a server that does not read
            pass


pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


def _drop(session: aiohttp.ClientSession, pool: _Pool) -> None:
    """Release the share of a client that was dropped without being closed. Any thread may collect it."""
    session.detach()
    closing = pool.release()
    try:
        pool.loop.call_soon_threadsafe(pool.loop.create_task, closing)
    except RuntimeError:  # the loop is closed, and its connections with it
        closing.close()
        pools.pop(pool.loop, None)
        _run_without_loop(pool.connector.close())


def _run_without_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    with contextlib.suppress(StopIteration, RuntimeError):
        for _ in range(_MAX_STEPS):
            work.send(None)
    work.close()


def _reason(error: Exception) -> str:
    """Return why a request failed, in words that quote no URL."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection before it answered"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection broke in the middle of the response"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused the connection with HTTP status {error.status}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the response is not valid HTTP: {printable(error.message, 200)}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {connecting.os_reason(error.os_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return connecting.os_reason(error.os_error)
    if isinstance(error, OSError):
        return connecting.os_reason(error)
    return printable(str(error), 200) or type(error).__name__
