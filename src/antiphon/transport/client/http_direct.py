"""The HTTP client of users who pass none: requests go straight to the server, on connections of asyncio.

The clients of an event loop share a pool of connections, which is closed with its last client. What is less
usual is left to aiohttp, which has all of it and costs several times as much for each request: proxies, names
and passwords in URLs, cookies, and addresses that have to be encoded.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohappyeyeballs

from antiphon.transport.client import http_connecting as connecting
from antiphon.transport.client.http_client import ConnectionClosed, HttpFailure, HttpResponse, InvalidUrl
from antiphon.transport.client.http_connection import Connection, Response
from antiphon.transport.client.http_proxies import environment_proxy
from antiphon.version import VERSION

if TYPE_CHECKING:
    from antiphon.transport.client.http_aiohttp import AiohttpClient

__all__ = ["DirectClient"]

_NEXT_ADDRESS_SECONDS = 0.25
"""How long an address of a host may take to connect before the next one is tried as well."""
_MAX_ROUTES = 16
"""For how many URLs a client remembers how to send requests to them."""
_MAX_HEADS = 64
"""How many heads of requests a client remembers for each URL."""
_REPEATABLE = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"})
"""The methods of requests that may be sent twice."""
_FOR_AIOHTTP = frozenset(
    {"connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers of users with which a request is not an ordinary one."""
_USER_AGENT = f"antiphon/{VERSION}"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_IN_VALUES = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PLAIN_HOST = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}|\[[0-9A-Fa-f:.]+\]")
_WITHOUT_BODY = frozenset({"GET", "OPTIONS", "TRACE"})
"""The methods of requests that say nothing about a body that they do not have."""


class _Address(NamedTuple):
    """What connections in the pool have in common."""

    host: str
    port: int
    tls: ssl.SSLContext | None


class _Route:
    """A URL, and the heads of the requests that were sent to it."""

    __slots__ = ("address", "heads", "host", "target")

    def __init__(self, address: _Address, host: str, target: str) -> None:
        self.address = address
        self.host = host
        self.target = target
        self.heads: dict[tuple[Any, ...], bytes] = {}


class DirectClient:
    """Sends requests on connections of its event loop's pool."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | Literal[False] | None = None,
        connect_timeout: float = 30.0,
        cookies: bool = True,
    ) -> None:
        self._tls = tls
        self._proxy = proxy
        self._connect_timeout = connect_timeout
        self._cookies = cookies
        self._routes: dict[str, _Route] = {}
        self._aiohttp: AiohttpClient | None = None
        self._has_cookies = False
        self._loop = asyncio.get_running_loop()
        self._last_request = self._loop.time()
        self._pool = _Pool.acquire()
        self._dropped = weakref.finalize(self, _drop, self._pool)

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the response, still unread."""
        self._check_open()
        route = None if self._has_cookies else (self._routes.get(url) or self._find_route(url))
        head = None if route is None else self._head(route, method, headers)
        if route is None or head is None:
            if not any(name.lower() == "user-agent" for name in headers):
                headers = {**headers, "user-agent": _USER_AGENT}
            return await self._through_aiohttp().request(method, url, headers, body)
        now = self._loop.time()
        if now - self._last_request > connecting.QUIET_SECONDS:
            await connecting.see_closed_connections()
            self._check_open()
        self._last_request = now
        if body is None and method in _WITHOUT_BODY:
            head += b"\r\n"
        else:
            head += b"content-length: %d\r\n\r\n" % len(body or b"")
        response = await self._send(route.address, method, head, body)
        if self._cookies and self._dropped.alive and (cookies := response.header("set-cookie")) is not None:
            self._through_aiohttp().add_cookies(cookies.split("\n"), url)
            self._has_cookies = True
        return response

    async def close(self) -> None:
        """Give up the client's share in the pool; the last client closes the pool."""
        if self._dropped.detach() is not None:
            self._pool.release()
        if self._aiohttp is not None:
            await self._aiohttp.close()

    async def _send(self, address: _Address, method: str, request: bytes, body: bytes | None) -> Response:
        connection = self._pool.take(address)
        if connection is not None:
            try:
                return await connection.send(request, body)
            except ConnectionClosed:
                if method not in _REPEATABLE or not self._dropped.alive:
                    raise
        connection = await self._connect(address)
        if not self._dropped.alive:
            connection.abort()
            self._check_open()
        return await connection.send(request, body)

    def _check_open(self) -> None:
        """Raise `HttpFailure` if no request can be sent."""
        if not self._dropped.alive:
            raise HttpFailure("the client is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise HttpFailure("the client belongs to another event loop")

    async def _connect(self, address: _Address) -> Connection:
        try:
            async with asyncio.timeout(self._connect_timeout) as limit:
                return await self._pool.connect(address)
        except ssl.SSLCertVerificationError as error:
            raise HttpFailure(str(error)) from None
        except OSError as error:
            if limit.expired():
                raise HttpFailure(f"connecting took more than {self._connect_timeout:g} s") from None
            raise HttpFailure(connecting.os_reason(error)) from None
        except ValueError:  # a name that no resolver or certificate can have
            raise InvalidUrl from None

    def _find_route(self, text: str) -> _Route | None:
        """Return the route of a URL, and remember it; `None` if aiohttp has to find out what it means."""
        if not (text.isascii() and text.isprintable()) or " " in text:
            return None
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            return None
        if url.scheme not in ("http", "https") or "@" in url.netloc or not url.hostname:
            return None
        if port == 0 or connecting.is_short_address(url.hostname):
            raise InvalidUrl
        name = url.netloc if port is None else url.netloc.rpartition(":")[0]
        if not _PLAIN_HOST.fullmatch(name) or self._proxy or self._uses_proxy(url.scheme, url.hostname, port):
            return None
        default = 443 if url.scheme == "https" else 80
        tls = (self._tls or connecting.default_tls()) if url.scheme == "https" else None
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        host = name.lower() if port in (None, default) else f"{name.lower()}:{port}"
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        route = self._routes[text] = _Route(_Address(url.hostname, port or default, tls), host, target)
        return route

    def _uses_proxy(self, scheme: str, host: str, port: int | None) -> bool:
        return self._proxy is None and environment_proxy(scheme, host, port) is not None

    def _head(self, route: _Route, method: str, headers: Mapping[str, str]) -> bytes | None:
        """Return the head of a request without its end; `None` for a request that is not an ordinary one.

        Raises `HttpFailure` for a header that cannot be sent.
        """
        key = (method, *headers.items())
        found = route.heads.get(key)
        if found is not None:
            return found
        names = {name.lower() for name in headers}
        if not method.isalpha() or not method.isupper() or method == "HEAD" or names & _FOR_AIOHTTP:
            return None
        lines = [f"{method} {route.target} HTTP/1.1"]
        defaults = {"host": route.host, "accept": "*/*", "user-agent": _USER_AGENT}
        lines += [f"{name}: {value}" for name, value in defaults.items() if name not in names]
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or _NOT_IN_VALUES.search(value):
                raise HttpFailure(
                    "a header of the request has a line break, or something else that is not allowed"
                )
            lines.append(f"{name}: {value}")
        if len(route.heads) >= _MAX_HEADS:
            route.heads.clear()
        try:
            head = ("\r\n".join(lines) + "\r\n").encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise HttpFailure("a header of the request has characters that cannot be sent") from None
        route.heads[key] = head
        return head

    def _through_aiohttp(self) -> AiohttpClient:
        """Return the client for requests that are not ordinary ones."""
        if self._aiohttp is None:
            from antiphon.transport.client.http_aiohttp import AiohttpClient

            self._aiohttp = AiohttpClient(
                tls=self._tls, proxy=self._proxy, connect_timeout=self._connect_timeout, cookies=self._cookies
            )
        return self._aiohttp


class _Pool:
    """The connections of all clients in one event loop. Its size is the number of requests at once.

    The clients bound their requests themselves: in a pool with a bound, a response to a server would wait for
    the calls. Idle connections are closed after a few seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._users = 0
        self._open: dict[Connection, _Address] = {}
        self._idle: dict[_Address, list[Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    @staticmethod
    def acquire() -> _Pool:
        """Return the pool of the running loop for one more client."""
        loop = asyncio.get_running_loop()
        pool = pools.get(loop)
        if pool is None:
            pool = pools[loop] = _Pool(loop)
        pool._users += 1
        return pool

    def release(self) -> None:
        """Close the connections if no other client uses the pool."""
        self._users -= 1
        if self._users:
            return
        if pools.get(self.loop) is self:
            del pools[self.loop]
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._idle.clear()
        if not self.loop.is_closed():
            for connection in tuple(self._open):
                connection.abort()

    def take(self, address: _Address) -> Connection | None:
        """Return the idle connection that was used last; `None` without one."""
        idle = self._idle.get(address)
        oldest = self.loop.time() - connecting.IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.is_usable() and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def connect(self, address: _Address) -> Connection:
        """Open a connection. Raises `OSError`."""
        sock = await aiohappyeyeballs.start_connection(
            await _resolve(address.host, address.port),
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            interleave=1,
            loop=self.loop,
        )
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await self.loop.create_connection(
                lambda: Connection(self._keep, self._forget),
                sock=sock,
                ssl=address.tls,
                server_hostname=None if address.tls is None else address.host,
            )
        except BaseException:
            sock.close()
            raise
        self._open[connection] = address
        return connection

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        address = self._open.get(connection)
        if address is None or not self._users:
            connection.abort()
            return
        connection.idle_since = self.loop.time()
        self._idle.setdefault(address, []).append(connection)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(connecting.IDLE_SECONDS, self._sweep)

    def _forget(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        address = self._open.pop(connection, None)
        if address is not None and connection in (idle := self._idle.get(address, [])):
            idle.remove(connection)

    def _sweep(self) -> None:
        """Close connections that have been idle for long."""
        self._sweeping = None
        oldest = self.loop.time() - connecting.IDLE_SECONDS
        for address, idle in tuple(self._idle.items()):
            for connection in tuple(idle):
                if connection.idle_since <= oldest:
                    idle.remove(connection)
                    connection.abort()
            if not idle:
                del self._idle[address]
        if self._idle:
            self._sweeping = self.loop.call_later(connecting.IDLE_SECONDS / 4, self._sweep)


pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


async def _resolve(host: str, port: int) -> list[Any]:
    """Return the addresses of a host. A number needs no thread. Raises `OSError`."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def _drop(pool: _Pool) -> None:
    """Release the share of a client that was dropped without being closed. Any thread may collect it."""
    try:
        pool.loop.call_soon_threadsafe(pool.release)
    except RuntimeError:  # the loop is closed, and its connections with it
        pools.pop(pool.loop, None)
