"""Requests to an issuer: its metadata, its keys, and the introspection of tokens.

Every request has a deadline and a bound on the response, and follows no redirect. Messages name the URL
without its query, and never the body of a request or a response.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from antiphon.authorization.urls import problem_of_url, shown_url, well_known_url

__all__ = ["MAX_DOCUMENT_BYTES", "IssuerUnavailable", "discover", "fetch_document"]

MAX_DOCUMENT_BYTES = 512 * 1024
"""The largest document that an issuer may send."""


class IssuerUnavailable(Exception):
    """The issuer did not respond, or not with the document that it should have."""


async def fetch_document(
    url: str,
    *,
    timeout: float,
    form: Mapping[str, str] | None = None,
    credentials: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Return the JSON object at a URL; raises `IssuerUnavailable`.

    `form` makes it a POST. `credentials` are a client id and its secret, for HTTP Basic authentication.
    """
    shown = shown_url(url)
    if problem := problem_of_url(url, query=True):
        raise IssuerUnavailable(f"the URL {shown} {problem}")
    # No compression: a small response could become a large document.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if credentials is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(':'.join(credentials).encode()).decode()}"
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=timeout), auto_decompress=False
            ) as session,
            session.request(
                "GET" if form is None else "POST", url, data=form, headers=headers, allow_redirects=False
            ) as response,
        ):
            if response.status != 200:
                raise IssuerUnavailable(f"{shown} responded with the status {response.status}")
            body = await _read(response, shown)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = "did not respond in time" if isinstance(error, TimeoutError) else type(error).__name__
        raise IssuerUnavailable(f"{shown}: {reason}") from None
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise IssuerUnavailable(f"{shown} did not respond with a JSON object")
    return document


async def discover(issuer: str, *, timeout: float) -> dict[str, Any]:
    """Return the metadata of an issuer; raises `IssuerUnavailable`.

    https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery
    """
    names = ["oauth-authorization-server", "openid-configuration"]
    urls = dict.fromkeys(well_known_url(issuer, name) for name in names)
    urls[f"{issuer.rstrip('/')}/.well-known/openid-configuration"] = None
    problems: list[str] = []
    for url in urls:
        try:
            document = await fetch_document(url, timeout=timeout)
        except IssuerUnavailable as error:
            problems.append(str(error))
            continue
        # A plain comparison of strings: a document for another issuer must not be used.
        if document.get("issuer") == issuer:
            return document
        problems.append(f"{url} is the metadata of another issuer: the strings must be equal")
    raise IssuerUnavailable("; ".join(problems))


async def _read(response: aiohttp.ClientResponse, shown: str) -> bytes:
    parts = bytearray()
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > MAX_DOCUMENT_BYTES:
            raise IssuerUnavailable(f"{shown} responded with more than {MAX_DOCUMENT_BYTES} bytes")
    return bytes(parts)
