"""Finds the issuer of a server and its endpoints: RFC 9728, then RFC 8414 or OpenID Connect Discovery.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/authorization-server-discovery
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from antiphon.authorization.urls import problem_of_url, shown_url, well_known_url
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.errors import AuthorizationFailed
from antiphon.transport.client.challenges import split_scopes

__all__ = ["Issuer", "ProtectedServer", "discover", "issuer_metadata"]

_MAX_ISSUERS = 10
_MAX_TIMEOUTS = 3.0
"""How long discovery takes in all, in timeouts of one request: a server can name many slow documents."""
_METADATA_NAME = "oauth-protected-resource"


class Issuer(msgspec.Struct, frozen=True):
    """An authorization server: the parts of its metadata that a client uses."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] = ()
    grant_types_supported: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False
    dpop_signing_alg_values_supported: tuple[str, ...] = ()


class ProtectedServer(msgspec.Struct, frozen=True):
    """A server that asks for tokens: its resource identifier, its scopes and its issuer."""

    resource: str
    scopes: tuple[str, ...]
    issuer: Issuer
    requires_proofs: bool = False
    """Whether the server accepts only tokens that are bound to a key (DPoP)."""


async def discover(
    requests: IssuerRequests, url: str, metadata_url: str | None, wanted: str | None
) -> ProtectedServer:
    """Return where a server gets its tokens from; raises `AuthorizationFailed`.

    `metadata_url` is the URL in the server's challenge. `wanted` is the only issuer that you accept, if any.
    """
    seconds = _MAX_TIMEOUTS * requests.timeout
    try:
        async with asyncio.timeout(seconds):
            return await _discovered(requests, url, metadata_url, wanted)
    except TimeoutError:
        raise AuthorizationFailed(
            f"The metadata of {shown_url(url)} and of its authorization servers were not there within "
            f"{seconds:g} s. Try again, or wait longer with request_timeout=."
        ) from None


async def _discovered(
    requests: IssuerRequests, url: str, metadata_url: str | None, wanted: str | None
) -> ProtectedServer:
    document = await _resource_metadata(requests, url, metadata_url)
    if document is None:
        return await _without_metadata(requests, url, wanted)
    resource = document["resource"]
    issuers = document.get("authorization_servers")
    named = [each for each in issuers if isinstance(each, str)] if isinstance(issuers, list) else []
    if wanted is not None:
        named = [each for each in named if each.removesuffix("/") == wanted.removesuffix("/")]
    if not named:
        which = (
            "no authorization server" if wanted is None else f"no authorization server {shown_url(wanted)}"
        )
        raise AuthorizationFailed(f"The metadata of {shown_url(url)} names {which}.")
    scopes = document.get("scopes_supported")
    return ProtectedServer(
        resource=resource,
        scopes=split_scopes(" ".join(map(str, scopes))) if isinstance(scopes, list) else (),
        issuer=await _first_issuer(requests, named[:_MAX_ISSUERS]),
        requires_proofs=document.get("dpop_bound_access_tokens_required") is True,
    )


async def _resource_metadata(
    requests: IssuerRequests, url: str, metadata_url: str | None
) -> dict[str, Any] | None:
    """Return the metadata of the server; `None` if it publishes none."""
    root = SplitResult(*urlsplit(url)[:2], "", "", "").geturl()
    well_known = [well_known_url(each, _METADATA_NAME) for each in (url, root)]
    for place in dict.fromkeys([metadata_url] if metadata_url else well_known):
        found = await requests.get(place)  # nosec B113 # our own client, with a deadline
        if found.status != 200 or not found.values:
            continue
        resource = found.values.get("resource")
        if not isinstance(resource, str) or not _covers(resource, url, is_well_known=place in well_known):
            # Otherwise a server could ask for tokens that another server accepts.
            raise AuthorizationFailed(
                f"{shown_url(place)} is the metadata of {shown_url(resource)}, and not of {shown_url(url)}. "
                "Connect to the URL that the metadata names."
            )
        return found.values
    if metadata_url:
        raise AuthorizationFailed(f"There is no metadata of the server at {shown_url(metadata_url)}.")
    return None


def _covers(resource: str, url: str, *, is_well_known: bool) -> bool:
    """Return whether a resource identifier is that of a URL: the same origin, and the same path.

    A path above is accepted in a document at a well-known place. Elsewhere, one of several tenants of a host
    could publish the document, and ask for tokens that all of them accept.
    """
    if problem_of_url(resource, query=True) is not None:
        return False
    try:
        ours, theirs = urlsplit(url), urlsplit(resource)
        same = (ours.scheme, ours.hostname, ours.port) == (theirs.scheme, theirs.hostname, theirs.port)
    except ValueError:
        return False
    path, above = f"{ours.path.rstrip('/')}/", f"{theirs.path.rstrip('/')}/"
    return same and (path == above or (is_well_known and path.startswith(above)))


async def _first_issuer(requests: IssuerRequests, named: list[str]) -> Issuer:
    problems: list[str] = []
    for name in named:
        try:
            found = await issuer_metadata(requests, name)
        except AuthorizationFailed as error:
            problems.append(str(error))
            continue
        if found is not None:
            return found
        problems.append(f"There is no metadata of the authorization server {shown_url(name)}.")
    raise AuthorizationFailed(" ".join(problems))


async def issuer_metadata(requests: IssuerRequests, name: str) -> Issuer | None:
    """Return the metadata of an issuer; `None` if it publishes none. Raises `AuthorizationFailed`."""
    if problem := requests.problem_of(name, query=False):
        raise AuthorizationFailed(f"The authorization server {shown_url(name)} {problem}.")
    places = [
        well_known_url(name, "oauth-authorization-server"),
        well_known_url(name, "openid-configuration"),
    ]
    places.append(f"{name.rstrip('/')}/.well-known/openid-configuration")
    # Some servers add a slash to the name of an issuer without a path. Both names have the same addresses.
    names = (name, name[:-1]) if urlsplit(name).path == "/" else (name,)
    mismatch: str | None = None
    for place in dict.fromkeys(places):
        found = await requests.get(place)  # nosec B113 # our own client, with a deadline
        if found.status != 200 or not found.values:
            continue
        if found.values.get("issuer") not in names:
            mismatch = shown_url(found.values.get("issuer"))
            continue
        return _issuer(requests, found.values)
    if mismatch is not None:
        raise AuthorizationFailed(
            f"The metadata of the authorization server {shown_url(name)} names {mismatch}: both must be the "
            "same text."
        )
    return None


def _issuer(requests: IssuerRequests, values: dict[str, Any]) -> Issuer:
    """Return checked metadata; raises `AuthorizationFailed`."""
    known = {name: values[name] for name in Issuer.__struct_fields__ if values.get(name) is not None}
    try:
        issuer = msgspec.convert(known, Issuer)
    except msgspec.ValidationError as error:
        shown = shown_url(values.get("issuer"))
        raise AuthorizationFailed(
            f"The metadata of the authorization server {shown} is not valid: {error}."
        ) from None
    for name in Issuer.__struct_fields__:
        value = getattr(issuer, name)
        if name.endswith("_endpoint") and value is not None and (problem := requests.problem_of(value)):
            raise AuthorizationFailed(
                f"The {name} of the authorization server {shown_url(issuer.issuer)} {problem}: "
                f"{shown_url(value)}."
            )
    return issuer


async def _without_metadata(requests: IssuerRequests, url: str, wanted: str | None) -> ProtectedServer:
    """Return the issuer of a server of the version 2025-03-26: the root of the server itself.

    https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#2-3-server-metadata-discovery
    """
    parts = urlsplit(url)
    root = SplitResult(parts.scheme, parts.netloc, "", "", "").geturl()
    resource = SplitResult(parts.scheme, parts.netloc, parts.path, "", "").geturl()
    if wanted is not None and wanted.removesuffix("/") != root:
        raise AuthorizationFailed(f"{shown_url(url)} does not say that its issuer is {shown_url(wanted)}.")
    if problem := requests.problem_of(root):
        raise AuthorizationFailed(f"{shown_url(url)} {problem}, and publishes no metadata for authorization.")
    issuer = await issuer_metadata(requests, root) or Issuer(
        issuer=root,
        authorization_endpoint=f"{root}/authorize",
        token_endpoint=f"{root}/token",
        registration_endpoint=f"{root}/register",
        code_challenge_methods_supported=("S256",),
    )
    return ProtectedServer(resource=resource, scopes=(), issuer=issuer)
