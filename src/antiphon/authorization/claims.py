"""The claims that every access token must have, whether it is a JWT or was introspected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["InvalidToken", "check_claims", "principal_id"]

_MAX_SUBJECT_CHARACTERS = 1024
"""How long a subject may be: tasks are found by it in a database. OpenID Connect allows 255 characters."""
_OF_USERS = (
    "username",
    "user_name",
    "preferred_username",
    "email",
    "phone_number",
    "upn",
    "unique_name",
    "user_id",
)
"""The claims in which issuers name users, beside the subject."""
_MAX_TIME = 1e12
"""The latest time that a claim may have, in seconds since 1970."""


class InvalidToken(Exception):
    """A token is refused. The message says why, without any part of the token."""


def check_claims(
    claims: Mapping[str, Any], *, issuer: str, audiences: Collection[str], leeway: float, now: float
) -> float:
    """Return when the token expires, in seconds since 1970; raises `InvalidToken`.

    `leeway` is how many seconds the clocks of the issuer and of this server may differ.
    """
    if claims.get("iss") != issuer:
        raise InvalidToken("The token is from another issuer.")
    given = claims.get("aud")
    named = given if isinstance(given, list) else [given]
    if not any(isinstance(audience, str) and audience in audiences for audience in named):
        raise InvalidToken("The token is for another audience.")
    expires = _time(claims, "exp")
    if expires is None:
        raise InvalidToken("The token has no expiry.")
    if expires <= now - leeway:
        raise InvalidToken("The token has expired.")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins > now + leeway:
            raise InvalidToken("The token is not valid yet.")
    subject = claims.get("client_id") if claims.get("sub") is None else claims["sub"]
    if not isinstance(subject, str) or not subject or len(subject) > _MAX_SUBJECT_CHARACTERS:
        raise InvalidToken("The token has no subject, or one that is not a short text.")
    if claims.get("cnf") is not None:
        # RFC 9449, section 7.1: a token that is bound to a key is no bearer token.
        raise InvalidToken("The token is bound to a key, and this server takes bearer tokens only.")
    return expires


def principal_id(claims: Mapping[str, Any]) -> str:
    """Return the id of the principal of a token, from its issuer and its subject; raises `InvalidToken`.

    A client that acts for itself has no subject, or its own id as one. It is not the user of that name. A
    token without a subject that names a user in another way is refused: all users of its client would be one.
    https://datatracker.ietf.org/doc/html/rfc9068#section-5
    """
    issuer, subject, client = claims["iss"], claims.get("sub"), claims.get("client_id")
    of_user = next((name for name in _OF_USERS if claims.get(name) is not None), None)
    if subject is None and of_user is not None:
        raise InvalidToken(f"The token is of a user (it has {of_user}) and has no subject (sub).")
    if subject is None or (subject == client and claims.get("username") is None):
        return f"client:{issuer}#{client}"
    return f"{issuer}#{subject}"


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a claim that is a time; raises `InvalidToken` if it is anything else."""
    value = claims.get(name)
    if value is None:
        return None
    # NaN compares as false with everything, so it must not pass as a time.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_TIME:
        raise InvalidToken(f"The claim {name} of the token is not a time.")
    return float(value)
