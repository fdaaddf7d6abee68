"""Verifies access tokens that are JWTs: their form, their signature and their claims.

https://datatracker.ietf.org/doc/html/rfc9068#section-4
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry

from antiphon import wall_clock
from antiphon.authorization.claims import InvalidToken, check_claims
from antiphon.authorization.key_cache import KeyCache

__all__ = ["ALGORITHMS", "JwtVerifier", "is_jwt"]

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""The algorithms of signatures that are accepted by default. All of them have a public key."""
_TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""The types of JWTs that may be access tokens. Other types, such as `logout+jwt`, are for other purposes."""
_MALFORMED = "The token is not a valid JWT."


class _Head(msgspec.Struct):
    alg: str
    kid: str | None = None
    typ: str | None = None


class _Source(msgspec.Struct):
    iss: str


class Registry(JWSRegistry):
    """The rules of joserfc, without its limit on headers: some issuers send certificates in them."""

    max_header_length = 8 * 1024

    def __init__(self, algorithms: Collection[str]) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)

    def get_alg(self, name: str) -> Any:
        """Return an accepted algorithm, without a warning about the name EdDSA, which issuers still use."""
        if name not in (self.allowed or ()):
            raise UnsupportedAlgorithmError(f"Algorithm of '{name}' is not allowed")
        return self.algorithms[name]


class JwtVerifier:
    """Verifies the JWTs of some issuers for some audiences."""

    def __init__(
        self,
        keys: Mapping[str, KeyCache],
        *,
        audiences: Collection[str],
        algorithms: Sequence[str],
        leeway: float,
    ) -> None:
        self._keys = keys
        self._audiences = audiences
        self._algorithms = frozenset(algorithms)
        self._leeway = leeway
        self._registry = Registry(self._algorithms)

    async def verify(self, token: str) -> tuple[dict[str, Any], float]:
        """Return the claims of a token, and when it expires.

        Raises `InvalidToken`, and `IssuerUnavailable` if the keys of its issuer are unknown.
        """
        first, _, rest = token.partition(".")
        head = _decode(first, _Head)
        if head.alg not in self._algorithms:
            raise InvalidToken("The token is signed with an algorithm that this server does not accept.")
        if head.typ is not None and head.typ.lower() not in _TYPES:
            raise InvalidToken("The token is a JWT, but not an access token.")
        # Not verified yet: it only says whose keys to use.
        issuer = _decode(rest.partition(".")[0], _Source).iss
        keys = self._keys.get(issuer)
        if keys is None:
            raise InvalidToken("The token is from another issuer.")
        key = await keys.find(head.kid, head.alg)
        try:
            claims = jwt.decode(token, key, registry=self._registry).claims
        except Exception:  # whatever the reason, a token that cannot be verified is refused
            raise InvalidToken("The signature of the token is not valid.") from None
        if (head.typ is None or head.typ.lower() == "jwt") and _is_id_token(claims):
            raise InvalidToken("The token is an ID token. Send the access token.")
        expires = check_claims(
            claims, issuer=issuer, audiences=self._audiences, leeway=self._leeway, now=wall_clock.now()
        )
        return claims, expires


def _is_id_token(claims: Mapping[str, Any]) -> bool:
    """Return whether claims are those of an ID token. If an audience is the id of an app, both may have it.

    https://openid.net/specs/openid-connect-core-1_0.html#CodeIDToken
    """
    if "at_hash" in claims or "c_hash" in claims:
        return True
    kind = claims.get("typ")  # Keycloak says there what a token is, and some versions copy the nonce
    return kind == "ID" or ("nonce" in claims and kind != "Bearer")


def is_jwt(token: str) -> bool:
    """Return whether a token has the form of a signed JWT."""
    return token.count(".") == 2


def _decode(part: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=kind)
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        raise InvalidToken(_MALFORMED) from None
