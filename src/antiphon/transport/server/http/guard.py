"""Which requests an HTTP server lets in at all: by Host, Origin and media types.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-%26-endpoint
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from antiphon.errors import BadMediaType, BadOrigin, NoEndpoint, NotAcceptable, RequestError

__all__ = ["Guard", "accepts"]

_LOCAL = {"localhost", "127.0.0.1", "[::1]", "::1"}
_REMEMBERED = 256


class Guard:
    """Keeps pages of other sites from talking to a server through a visitor's browser.

    What it found out about a kind of request it remembers, since most requests are of the same kind.
    """

    def __init__(
        self, paths: Collection[str], hosts: Sequence[str] | None, origins: Sequence[str] | None
    ) -> None:
        self._paths = frozenset(paths)
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._origins = None if origins is None else {origin.lower().rstrip("/") for origin in origins}
        self._verdicts: dict[tuple[Any, ...], RequestError | None] = {}
        self._usual: tuple[Any, ...] = ()
        """The last kind of request that was let in; most are like it."""

    def check(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Raise what is wrong with where a request goes, where it comes from, or what it says it is."""
        get = headers.get
        key = (
            scope["path"],
            scope.get("root_path"),
            scope.get("server"),
            get(b"host"),
            get(b"origin"),
            get(b"content-type"),
        )
        if key == self._usual:
            return
        try:
            verdict = self._verdicts[key]
        except KeyError:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._judge(scope, headers)
        if verdict is not None:
            raise type(verdict)(verdict.message)
        self._usual = key

    def _judge(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> RequestError | None:
        """What is wrong, or `None`."""
        path, root = scope["path"], scope.get("root_path", "")
        if (path.removeprefix(root) if root else path) not in self._paths:
            return NoEndpoint(f"There is no MCP endpoint at {path}.")
        problem = self._judge_origin(scope, headers)
        if problem is not None:
            return problem
        try:
            check_content_type(headers)
        except BadMediaType as error:
            return error
        return None

    def check_page(self, scope: Mapping[str, Any]) -> None:
        """Raise `BadOrigin` for a request to a page from a host or an origin that is not trusted."""
        problem = self._judge_origin(scope, dict(scope["headers"]))
        if problem is not None:
            raise problem

    def _judge_origin(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> RequestError | None:
        address = scope.get("server")
        local = address is not None and (address[0] in _LOCAL or str(address[0]).startswith("127."))
        host, origin = _text(headers.get(b"host")), _text(headers.get(b"origin"))
        if not self._host_is_good(host, local):
            return BadOrigin(f"This server does not answer to the host {host!r}: add it to `hosts`.")
        if origin and not self._origin_is_good(origin, host, local):
            return BadOrigin(f"This server does not trust pages from {origin!r}: add it to `origins`.")
        return None

    def _host_is_good(self, host: str, local: bool) -> bool:
        if self._hosts is not None:
            return "*" in self._hosts or host in self._hosts or _name(host) in self._hosts
        return not local or not host or _name(host) in _LOCAL

    def _origin_is_good(self, origin: str, host: str, local: bool) -> bool:
        if self._origins is not None and ("*" in self._origins or origin in self._origins):
            return True
        _, _, authority = origin.partition("://")
        if authority and authority == host:
            return True
        return self._origins is None and local and _name(authority) in _LOCAL


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Raise `BadMediaType` for a body that says it is something other than JSON."""
    content_type = headers.get(b"content-type")
    if content_type is None or content_type == b"application/json":
        return
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise BadMediaType("The body of a request is JSON: send Content-Type: application/json.")


_accepted: dict[bytes | None, tuple[bool, bool]] = {
    None: (True, True),
    b"application/json, text/event-stream": (True, True),
}


def accepts(accept: bytes | None) -> tuple[bool, bool]:
    """Whether to answer with JSON where that will do, and whether the caller takes event streams.

    A caller that names event streams before JSON gets those. Raises `NotAcceptable` for one that
    takes neither.
    """
    verdict = _accepted.get(accept)
    if verdict is None:
        verdict = _read_accept(_text(accept))
        if len(_accepted) < _REMEMBERED:
            _accepted[accept] = verdict
    if verdict == (False, False):
        raise NotAcceptable(
            "The answer is JSON or an event stream: accept application/json, text/event-stream."
        )
    return verdict


def _read_accept(accept: str) -> tuple[bool, bool]:
    ranges = [part.partition(";")[0].strip() for part in accept.split(",")]
    json = [
        place for place, kind in enumerate(ranges) if kind in ("application/json", "application/*", "*/*")
    ]
    stream = [place for place, kind in enumerate(ranges) if kind in ("text/event-stream", "text/*", "*/*")]
    return bool(json) and (not stream or json[0] <= stream[0]), bool(stream)


def _name(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("latin-1").strip().lower()
