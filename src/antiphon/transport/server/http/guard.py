"""Checks of the path, the Host, the Origin and the media types of a request, before it is read.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-%26-endpoint
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from antiphon.errors import BadMediaType, BadOrigin, NoEndpoint, NotAcceptable, RequestError

__all__ = ["Guard", "accepts", "is_local", "without_port"]

_MAX_CACHED_CHECKS = 256
_MAX_CACHED_BYTES = 1024
"""How long the headers of a check are together that is cached: a client may send any."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


class Guard:
    """Refuses requests that web pages of other sites send through a visitor's browser.

    Caches the outcome for each combination of headers, because most requests of a client have the same ones.
    """

    def __init__(
        self, paths: Collection[str], hosts: Sequence[str] | None, origins: Sequence[str] | None
    ) -> None:
        self._paths = frozenset(paths)
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._origins = None if origins is None else {origin.lower().rstrip("/") for origin in origins}
        self._checked: dict[tuple[Any, ...], RequestError | None] = {}
        """The outcome of a check, by path and headers: an error, or `None`."""
        self._last_allowed: tuple[Any, ...] = ()
        """The path and headers of the last request that was allowed. Most requests equal it."""

    def check(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check a request; raises `NoEndpoint`, `BadOrigin` or `BadMediaType`."""
        get = headers.get
        key = (
            scope["path"],
            scope.get("root_path"),
            scope.get("server"),
            get(b"host"),
            get(b"origin"),
            get(b"content-type"),
        )
        if key == self._last_allowed:
            return
        try:
            problem = self._checked[key]
        except KeyError:
            problem = self._find_problem(scope, headers)
            if sum(map(len, filter(None, key[3:]))) > _MAX_CACHED_BYTES:
                if problem is not None:
                    raise problem from None
                return
            if len(self._checked) >= _MAX_CACHED_CHECKS:
                self._checked.clear()
            self._checked[key] = problem
        if problem is not None:
            raise type(problem)(problem.message)
        self._last_allowed = key

    def _find_problem(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> RequestError | None:
        """Return the error for a request, or `None` if the request is allowed."""
        path, root = scope["path"], scope.get("root_path", "")
        if (path.removeprefix(root) if root else path) not in self._paths:
            return NoEndpoint(f"There is no MCP endpoint at {path}.")
        problem = self._find_origin_problem(scope, headers)
        if problem is not None:
            return problem
        try:
            check_content_type(headers)
        except BadMediaType as error:
            return error
        return None

    def check_page(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check a request for a page; raises `BadOrigin` if its host or origin is not trusted."""
        problem = self._find_origin_problem(scope, headers)
        if problem is not None:
            raise problem

    def check_probe(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check a request for a probe; raises `BadOrigin`.

        Health checks name the process by its address, whatever names its clients use: an address is always
        trusted. A web page that reaches the server through a visitor's browser has a name in its `Host`.
        """
        host = without_port(_text(headers.get(b"host")))
        is_no_name = host in ("", "localhost") or _address(host) is not None
        problem = self._find_origin_problem(scope, headers, trusts_host=is_no_name)
        if problem is not None:
            raise problem

    def _find_origin_problem(
        self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], *, trusts_host: bool = False
    ) -> RequestError | None:
        server = scope.get("server")
        local = server is not None and is_local(str(server[0]))
        host, origin = _text(headers.get(b"host")), _text(headers.get(b"origin"))
        if not trusts_host and not self._is_trusted_host(host, local):
            return BadOrigin(f"This server does not trust the host {host!r}: add it to `hosts`.")
        if origin and not self._is_trusted_origin(origin, host, local):
            return BadOrigin(f"This server does not trust pages from {origin!r}: add it to `origins`.")
        return None

    def _is_trusted_host(self, host: str, local: bool) -> bool:
        if self._hosts is not None:
            return "*" in self._hosts or host in self._hosts or without_port(host) in self._hosts
        return not local or not host or is_local(without_port(host))

    def _is_trusted_origin(self, origin: str, host: str, local: bool) -> bool:
        if self._origins is not None and ("*" in self._origins or origin in self._origins):
            return True
        scheme, _, authority = origin.partition("://")
        if not _SCHEME.fullmatch(scheme):
            return False
        if authority and authority == host:
            return True
        return self._origins is None and local and is_local(without_port(authority))


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Check the media type of the body; raises `BadMediaType` if it is not JSON."""
    content_type = headers.get(b"content-type")
    if content_type is None or content_type == b"application/json":
        return
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise BadMediaType("The body must be JSON: send Content-Type: application/json.")


_accepted: dict[bytes | None, tuple[bool, bool]] = {
    None: (True, True),
    b"application/json, text/event-stream": (True, True),
}


def accepts(accept: bytes | None) -> tuple[bool, bool]:
    """Return whether the client prefers JSON, and whether it accepts event streams.

    A client that names event streams before JSON prefers event streams. Raises `NotAcceptable` if the client
    accepts neither.
    """
    accepted = _accepted.get(accept)
    if accepted is None:
        accepted = _read_accept(_text(accept))
        if len(_accepted) < _MAX_CACHED_CHECKS:
            _accepted[accept] = accepted
    if accepted == (False, False):
        raise NotAcceptable(
            "The response is JSON or an event stream: send Accept: application/json, text/event-stream."
        )
    return accepted


def _read_accept(accept: str) -> tuple[bool, bool]:
    ranges = [part.partition(";")[0].strip(" \t") for part in accept.split(",")]
    json = [
        place for place, kind in enumerate(ranges) if kind in ("application/json", "application/*", "*/*")
    ]
    stream = [place for place, kind in enumerate(ranges) if kind in ("text/event-stream", "text/*", "*/*")]
    return bool(json) and (not stream or json[0] <= stream[0]), bool(stream)


def without_port(host: str) -> str:
    """Return a host without its port, or the whole text if this is not a host and a port."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host
    return name if port.isdecimal() or not port else host


def is_local(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address, also one that is mapped into IPv6."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is, or `None` if it is a name."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("latin-1").strip(" \t").lower()
