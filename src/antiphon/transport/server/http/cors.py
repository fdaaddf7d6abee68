"""The headers with which a browser lets pages of other origins call the endpoint, and read its responses.

Owns these headers, and which origins are named. Whether a request is served at all is for `guard.py`.
https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.transport.server.http.asgi import Scope, Send

__all__ = ["FOR_EVERYBODY", "Cors", "is_preflight", "read_origin"]

FOR_EVERYBODY: Mapping[str, str] = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, OPTIONS",
    "access-control-allow-headers": "*",
    "access-control-max-age": "86400",
}
"""The headers of a document that pages of every origin may read."""

_EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, Allow"
_METHODS = "GET, POST, DELETE"
_REQUEST_HEADERS = (
    "Accept, Authorization, Content-Type, DPoP, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, "
    "Mcp-Session-Id, traceparent, tracestate, baggage, *"
)
"""What pages may send. The star stands for `Mcp-Param-…` and an author's headers, not for `Authorization`."""
_PREFLIGHT = (
    ("access-control-allow-methods", _METHODS),
    ("access-control-allow-headers", _REQUEST_HEADERS),
    ("access-control-max-age", "7200"),
)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/?#@:*\[\]\\]+)(:[0-9]+)?(?![^/?#])")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def is_preflight(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser asks if a page of another origin may send a request."""
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def read_origin(text: str) -> str:
    """Return an origin as browsers send it, or `*`; raises `DefinitionError` if it is none."""
    origin = text.lower().removesuffix("/")
    if origin in ("*", "null"):
        return origin
    if (found := _ORIGIN.match(origin)) is None:
        raise DefinitionError(
            f"{text!r} is not an origin: name the scheme and the host of the pages, such as "
            "https://app.example.com, or * for all pages."
        )
    if found.end() != len(origin):
        raise DefinitionError(
            f"The origin {text!r} has more than a scheme, a host and a port: name {found[0]}, which stands "
            "for all pages there."
        )
    return _without_default_port(origin)


def _without_default_port(origin: str) -> str:
    """Return an origin, in lower case, without the port that its scheme has anyway, as browsers send it."""
    default = _DEFAULT_PORTS.get(origin.partition("://")[0])
    return origin if default is None else origin.removesuffix(f":{default}")


class Cors:
    """The pages that may call an endpoint from other origins: those of the origins that are named.

    `"*"` names all. No page may send the cookies of the server, which authenticates callers by a header.
    """

    preflight = _PREFLIGHT
    """The headers of the response to a preflight, beside those of every response."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(map(read_origin, origins))

    def names(self, origin: str) -> bool:
        """Return whether pages of this origin, in lower case, are named."""
        return "*" in self._origins or _without_default_port(origin) in self._origins

    def extending(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that adds what the response says to the page that sent a request."""
        origins = [value for name, value in scope["headers"] if name == b"origin"]
        if not origins:
            return send
        lines = self._lines(origins)

        async def extended(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *lines]}
            await send(message)

        return extended

    def _lines(self, origins: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        origin = origins[0].strip(b" \t")
        vary = [] if "*" in self._origins else [(b"vary", b"Origin")]
        if len(origins) > 1 or not self.names(origin.decode("latin-1").lower()):
            return vary
        allowed = origin if vary else b"*"
        return [
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", _EXPOSED),
            *vary,
        ]
