"""Authentication of callers: the type of the `authenticate` function, and a ready-made one for fixed tokens.

Knows headers and principals, but no transport.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from antiphon.errors import DefinitionError, Unauthorized
from antiphon.model.identity import Principal, problem_of

__all__ = ["Authenticate", "BearerTokens"]

Authenticate: TypeAlias = Callable[[Mapping[str, str]], Principal | Awaitable[Principal | None] | None]
"""Returns the principal of a request from its headers, which have lower-case names.

Return `None` to refuse with a plain 401. Raise `Unauthorized` or `Forbidden` to give a reason. Any other
value, and a `Principal` whose id is not a string or is empty, refuses too, and is logged once as a mistake.
"""


class BearerTokens:
    """Authenticates callers by fixed tokens: `Server(…, authenticate=BearerTokens({"s3cret": "alice"}))`.

    `tokens` maps each token to a `Principal`, or to the id of one. `realm` is the realm in the
    `WWW-Authenticate` header of a refusal. Raises `DefinitionError` if an id is not a string or is empty.
    """

    def __init__(self, tokens: Mapping[str, str | Principal], *, realm: str = "mcp") -> None:
        self._tokens = []
        for number, (token, caller) in enumerate(tokens.items(), 1):
            principal = caller if isinstance(caller, Principal) else Principal(caller)
            if problem := problem_of(principal):
                raise DefinitionError(
                    f"Token {number} of BearerTokens stands for {problem}. Give the caller an id."
                )
            self._tokens.append((token.encode(), principal))
        self._realm = realm

    def __call__(self, headers: Mapping[str, str]) -> Principal:
        """Return the principal of a token; raises `Unauthorized` without a token or for an unknown one."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(
                "Send a token: Authorization: Bearer …", challenge=f'Bearer realm="{self._realm}"'
            )
        given = token.strip().encode()
        found: Principal | None = None
        # Compare with every token, so that the time taken does not reveal which one matched.
        for known, principal in self._tokens:
            if hmac.compare_digest(known, given):
                found = principal
        if found is None:
            raise Unauthorized(
                "This server does not know this token. Use another one.",
                challenge=f'Bearer realm="{self._realm}", error="invalid_token"',
            )
        return found
