"""The HTTP request that an adopted server sees: its headers, and who sent it.

Both generations of the official SDK show it to functions as a request of Starlette, on which they depend.
"""

from __future__ import annotations

from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

from antiphon.adoption.exchange import Exchange
from antiphon.adoption.own_authentication import TokenPrincipal

__all__ = ["http_request"]

_HIDDEN = frozenset({b"content-length", b"mcp-session-id"})
"""The length of another body, if the head of the request was parsed before; and the key to the session."""


def http_request(exchange: Exchange) -> Any:
    """Return the request as Starlette has it; `None` if no HTTP request brought the call.

    The server gets the credentials in the headers, as it would by itself. The user is the principal that this
    library has authenticated.
    """
    call = exchange.call
    if call is None or not call.caller.headers:
        return None
    lines = call.caller.headers
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(name, value) for name, value in lines.items() if name not in _HIDDEN],
    }
    principal = call.principal
    if isinstance(principal, TokenPrincipal):
        scope["user"] = AuthenticatedUser(principal.access_token)
    elif principal.id:
        kind, _, token = lines.get(b"authorization", b"").decode("latin-1").partition(" ")
        scope["user"] = AuthenticatedUser(
            AccessToken(
                token=token if kind.lower() == "bearer" else "",
                client_id=principal.id,
                scopes=sorted(principal.scopes),
            )
        )
    return Request(scope)
