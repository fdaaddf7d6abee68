"""Ready answers to the question who is calling."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from antiphon.errors import Unauthorized
from antiphon.model.identity import Principal

__all__ = ["Authenticate", "BearerTokens"]

Authenticate: TypeAlias = Callable[[Mapping[str, str]], Principal | Awaitable[Principal | None] | None]
"""From a request's headers, with lower-case names, to who sends them.

`None` refuses with a plain 401; raise `Unauthorized` or `Forbidden` to say more.
"""


class BearerTokens:
    """Knows its callers by fixed tokens: `Server(…, authenticate=BearerTokens({"s3cret": "alice"}))`."""

    def __init__(self, tokens: Mapping[str, str | Principal], *, realm: str = "mcp") -> None:
        self._tokens = [
            (token.encode(), who if isinstance(who, Principal) else Principal(who))
            for token, who in tokens.items()
        ]
        self._realm = realm

    def __call__(self, headers: Mapping[str, str]) -> Principal:
        """Who has this token; raises `Unauthorized`."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(
                "Send a token: Authorization: Bearer …", challenge=f'Bearer realm="{self._realm}"'
            )
        given = token.strip().encode()
        found: Principal | None = None
        for known, principal in self._tokens:  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(known, given):
                found = principal
        if found is None:
            raise Unauthorized(
                "This token is not known here.",
                challenge=f'Bearer realm="{self._realm}", error="invalid_token"',
            )
        return found
