"""Checks of the path, the Host, the Origin and the media types of a request, before it is read.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-%26-endpoint
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from antiphon.errors import BadMediaType, BadOrigin, NoEndpoint, NotAcceptable, RequestError

__all__ = ["Guard", "accepts"]

_LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "::1"}
_MAX_CACHED_CHECKS = 256


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
            if len(self._checked) >= _MAX_CACHED_CHECKS:
                self._checked.clear()
            problem = self._checked[key] = self._find_problem(scope, headers)
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

    def check_page(self, scope: Mapping[str, Any]) -> None:
        """Check a request for a page; raises `BadOrigin` if its host or origin is not trusted."""
        problem = self._find_origin_problem(scope, dict(scope["headers"]))
        if problem is not None:
            raise problem

    def _find_origin_problem(
        self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> RequestError | None:
        address = scope.get("server")
        local = address is not None and (address[0] in _LOCAL_HOSTS or str(address[0]).startswith("127."))
        host, origin = _text(headers.get(b"host")), _text(headers.get(b"origin"))
        if not self._is_trusted_host(host, local):
            return BadOrigin(f"This server does not trust the host {host!r}: add it to `hosts`.")
        if origin and not self._is_trusted_origin(origin, host, local):
            return BadOrigin(f"This server does not trust pages from {origin!r}: add it to `origins`.")
        return None

    def _is_trusted_host(self, host: str, local: bool) -> bool:
        if self._hosts is not None:
            return "*" in self._hosts or host in self._hosts or _without_port(host) in self._hosts
        return not local or not host or _without_port(host) in _LOCAL_HOSTS

    def _is_trusted_origin(self, origin: str, host: str, local: bool) -> bool:
        if self._origins is not None and ("*" in self._origins or origin in self._origins):
            return True
        _, _, authority = origin.partition("://")
        if authority and authority == host:
            return True
        return self._origins is None and local and _without_port(authority) in _LOCAL_HOSTS


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
    ranges = [part.partition(";")[0].strip() for part in accept.split(",")]
    json = [
        place for place, kind in enumerate(ranges) if kind in ("application/json", "application/*", "*/*")
    ]
    stream = [place for place, kind in enumerate(ranges) if kind in ("text/event-stream", "text/*", "*/*")]
    return bool(json) and (not stream or json[0] <= stream[0]), bool(stream)


def _without_port(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("latin-1").strip().lower()
