"""Finds the credentials that the author's requests have, so that no message repeats them.

They are in headers, in the address of the API, and in an HTTP client: its headers, parameters, cookies and
authentication. It must not know requests or answers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

__all__ = ["cookie_names", "secrets_of", "without_secrets"]

_MIN_SECRET_CHARACTERS = 6
"""The length of the shortest text that counts as a secret. Shorter ones are parts of other words."""
_HARMLESS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "connection",
        "content-type",
        "user-agent",
    }
)
"""Headers whose values are no secrets, and are useful in messages."""


def secrets_of(headers: Mapping[str, str], base_url: str, client: Any) -> tuple[str, ...]:
    """Return the secrets in the author's headers, in the address of the API and in the HTTP client.

    Longer ones come first, because one may contain another.
    """
    found = {
        form
        for secret in (*_in_headers(headers), *_in_url(base_url), *_in_client(client))
        if len(secret) >= _MIN_SECRET_CHARACTERS
        for form in (secret, quote(secret, safe=""), quote_plus(secret), _as_json(secret))
    }
    return tuple(sorted(found, key=len, reverse=True))


def cookie_names(client: Any) -> set[str]:
    """Return the names of the cookies that an HTTP client has."""
    return {name for name, _ in _cookies(client)}


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with stars in place of secrets."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _in_headers(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if name.lower() in _HARMLESS:
            continue
        scheme, _, token = value.rpartition(" ")
        yield from (value, token)
        if scheme.lower() == "basic":
            yield from _in_basic(token)
        if name.lower() == "cookie":
            yield from (pair.partition("=")[2].strip() for pair in value.split(";"))


def _in_basic(token: str) -> Iterator[str]:
    """Yield the user and the password in the token of basic authentication."""
    try:
        yield from base64.b64decode(token).decode("latin-1").split(":", 1)
    except (binascii.Error, ValueError):
        return


def _in_url(url: str) -> Iterator[str]:
    given = urlsplit(url).netloc.rpartition("@")[0]
    if given:
        user, _, password = (unquote(part) for part in given.partition(":"))
        yield from (given, password, base64.b64encode(f"{user}:{password}".encode()).decode())


def _in_client(client: Any) -> Iterator[str]:
    """Yield the secrets of an `AsyncClient` of httpx2 or httpx, or of a session of aiohttp."""
    yield from _in_headers(
        {str(name): str(value) for name, value in (getattr(client, "headers", None) or {}).items()}
    )
    yield from (str(value) for value in (getattr(client, "params", None) or {}).values())
    yield from (value for _, value in _cookies(client) if value)
    yield from _in_auth(getattr(client, "auth", None))


def _cookies(client: Any) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of the cookies of an HTTP client."""
    for cookie in getattr(getattr(client, "cookies", None), "jar", ()):  # httpx2
        yield cookie.name, cookie.value
    for morsel in getattr(client, "cookie_jar", ()):  # aiohttp
        yield morsel.key, morsel.value


def _in_auth(auth: Any) -> Iterator[str]:
    """Yield the texts of an authentication object, which keeps its credentials in its attributes."""
    values: Iterable[Any] = auth if isinstance(auth, tuple) else getattr(auth, "__dict__", {}).values()
    for value in values:
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(value, str):
            yield from _in_headers({"authorization": value})


def _as_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]
