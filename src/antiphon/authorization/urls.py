"""Checks of the URLs in the settings of authorization and in the documents of issuers."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

__all__ = ["problem_of_url", "shown_url", "well_known_url"]

_MAX_SHOWN_CHARACTERS = 200


def problem_of_url(url: object, *, query: bool = False) -> str | None:
    """Return why a URL cannot be used for authorization, or `None`.

    OAuth requires https; http is allowed for loopback addresses. `query` allows a query.
    """
    if not isinstance(url, str):
        return "is not a string"
    if not url.isascii() or any(character <= " " or character in '"\\<>' for character in url):
        return "has characters that a URL cannot have"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if not host or parts.scheme not in ("https", "http"):
        return "is not an https URL"
    if parts.scheme == "http" and not _is_loopback(host):
        return "must use https: only loopback addresses may use http"
    if "@" in parts.netloc:
        return "has a user name or a password"
    if "#" in url:
        return "has a fragment"
    return "has a query" if "?" in url and not query else None


def shown_url(url: object) -> str:
    """Return a URL for a message, without its query and its user, which may hold secrets."""
    scheme, slashes, rest = str(url).partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"[:_MAX_SHOWN_CHARACTERS]


def well_known_url(url: str, name: str) -> str:
    """Return the URL of a well-known document, with the path of `url` after its name.

    https://datatracker.ietf.org/doc/html/rfc9728#section-3
    """
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    return SplitResult(parts.scheme, parts.netloc, f"/.well-known/{name}{path}", "", "").geturl()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
