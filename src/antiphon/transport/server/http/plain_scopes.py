"""What the guard has allowed for plain requests, shared by all connections to one address of the server.

A client sends the same headers with each request, so they are checked once. Owns which headers have passed;
`guard.py` checks them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from antiphon.transport.server.http.asgi import Scope
from antiphon.transport.server.http.known_heads import KnownHeaders

__all__ = ["USUAL_ACCEPT", "PlainScopes", "is_usual", "note_allowed"]

Address: TypeAlias = tuple[str, int | None] | None

USUAL_ACCEPT = b"application/json, text/event-stream"
"""The Accept header that MCP clients send."""
_MAX_ADDRESSES = 64
"""For how many addresses of the server scopes are kept."""
_MAX_ALLOWED = 256
"""How many combinations of headers are kept for each."""
_MAX_ALLOWED_BYTES = 512
"""How long the headers of a combination are together that is kept: a client may send any."""


class PlainScopes:
    """The scopes of plain requests to one endpoint: like those of ASGI, with the headers that have passed."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths
        self.by_address: dict[Address, Mapping[bytes, Scope]] = {}

    def of(self, address: Address) -> Mapping[bytes, Scope]:
        """Return the scopes for an address of the server, by the path of the request."""
        found = self.by_address.get(address)
        if found is None:
            if len(self.by_address) >= _MAX_ADDRESSES:
                self.by_address.clear()
            found = self.by_address[address] = {
                path.encode(): {"path": path, "root_path": "", "server": address, "allowed": set()}
                for path in self._paths
            }
        return found


def is_usual(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether these headers have passed before, and accept responses in the usual words."""
    if headers.get(b"accept") != USUAL_ACCEPT or _key(headers) not in scope["allowed"]:
        return False
    if type(headers) is KnownHeaders:
        headers.usual_in = scope
    return True


def note_allowed(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Note that the guard has allowed a request with these headers."""
    allowed, key = scope["allowed"], _key(headers)
    if sum(map(len, filter(None, key))) > _MAX_ALLOWED_BYTES:
        return
    if len(allowed) >= _MAX_ALLOWED:
        allowed.clear()
    allowed.add(key)


def _key(headers: Mapping[bytes, bytes]) -> tuple[Any, ...]:
    """Return the headers that the guard looks at."""
    get = headers.get
    return get(b"host"), get(b"origin"), get(b"content-type")
