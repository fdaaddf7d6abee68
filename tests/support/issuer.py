"""A small issuer of access tokens in the process of a test: its metadata, its keys and introspection.

It signs whatever claims a test wants, so that tests can make tokens that no real issuer would.
"""

from __future__ import annotations

import base64
import inspect
import json
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiohttp import web
from joserfc import jws
from joserfc.jwk import ECKey, Key, RSAKey

from antiphon import IssuedTokens, Principal
from tests.support.web import answering

RESOURCE = "https://notes.example.com/mcp"


class TestIssuer:
    """An issuer on a loopback port. `requests` counts the requests by path."""

    __test__ = False

    def __init__(self, port: int, path: str = "") -> None:
        self.url = f"http://127.0.0.1:{port}{path}"
        self.path = path
        self.requests: Counter[str] = Counter()
        self.keys: list[Key] = [new_key("first")]
        self.is_away = False
        self.active: dict[str, dict[str, Any]] = {}
        """What introspection says about opaque tokens."""
        self.credentials: list[str] = []
        """The Authorization headers of introspections."""
        self.metadata: dict[str, Any] = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "introspection_endpoint": f"{self.url}/introspect",
        }

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a valid token, with changes; `None` leaves a claim out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "ada",
            "aud": RESOURCE,
            "exp": now + 600,
            "iat": now,
            "scope": "notes:read",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, key: Key | None = None, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """Return a signed token, with changes to its claims and its header."""
        key = key or self.keys[0]
        algorithm = "ES256" if isinstance(key, ECKey) else "RS256"
        head = {"alg": algorithm, "kid": key.kid, "typ": "at+jwt", **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        claims = json.dumps(self.claims(**changes)).encode()
        return jws.serialize_compact(head, claims, key, algorithms=[head["alg"]])

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        path = request.path.removeprefix(self.path)
        self.requests[request.path] += 1
        if self.is_away:
            return web.Response(status=503)
        if request.path == f"{self.path}/.well-known/openid-configuration":
            return web.json_response(self.metadata)
        if path == "/jwks":
            return web.json_response({"keys": [key.as_dict(private=False) for key in self.keys]})
        if path == "/introspect":
            self.credentials.append(request.headers.get("Authorization", ""))
            form = await request.post()
            return web.json_response(self.active.get(str(form["token"]), {"active": False}))
        return web.Response(status=404)


def issuing(path: str = "") -> AbstractAsyncContextManager[TestIssuer]:
    """Run an issuer while the context is open. `path` is the path in its URL."""
    return answering(lambda port: TestIssuer(port, path))


def is_cached(tokens: IssuedTokens, token: str) -> bool:
    """Return whether a token is known: then its principal is there at once."""
    found = tokens({"authorization": f"Bearer {token}"})
    if inspect.iscoroutine(found):
        found.close()
    return isinstance(found, Principal)


def new_key(id: str, kind: str = "EC") -> Key:
    """Return a new signing key, for ES256 or RS256."""
    parameters: Any = {"kid": id, "use": "sig"}
    if kind == "RSA":
        return RSAKey.generate_key(2048, parameters)
    return ECKey.generate_key("P-256", parameters)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """Return a JWT with any header, any claims and any signature."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


async def identify(tokens: IssuedTokens, token: str) -> Principal:
    """Return the principal of a token; raises what `IssuedTokens` raises."""
    found = tokens({"authorization": f"Bearer {token}"})
    return await found if inspect.isawaitable(found) else found
