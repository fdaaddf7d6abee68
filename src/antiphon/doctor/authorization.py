"""Checks how a server that asks for tokens tells its callers where to get them.

Reads the metadata of the server and of its issuer, as a client does before a login. Registers nothing, and
sends no token.
"""

from __future__ import annotations

import base64
import shlex
from typing import Any

import msgspec

from antiphon.client.oauth.discovery import Issuer, ProtectedServer, discover
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.client.oauth.logins import FileLogins, Login
from antiphon.doctor.checks import Check
from antiphon.errors import AuthorizationFailed
from antiphon.server_target import ServerTarget
from antiphon.transport.client.challenges import bearer_parameters
from antiphon.transport.client.http_client import http_client

__all__ = ["check_authorization", "check_stored_login"]


async def check_authorization(target: ServerTarget, challenge: str) -> list[Check]:
    """Check a server that has refused a request with a challenge."""
    parameters = bearer_parameters(challenge)
    checks = await _checks(target, parameters.get("resource_metadata"), None)
    advice = f"To check the rest, log in: antiphon login {shlex.quote(target.name)}"
    return [*checks, Check("login", "advice", "the server requires a login", advice)]


async def check_stored_login(target: ServerTarget) -> list[Check]:
    """Check a server at which the user is logged in; returns nothing without a login."""
    login = FileLogins().find(str(target.endpoint))
    return [] if login is None else await _checks(target, None, login)


async def _checks(target: ServerTarget, metadata_url: str | None, login: Login | None) -> list[Check]:
    url = str(target.endpoint)
    # The user has named the server, and wants to know what it says. Nothing but metadata is requested.
    requests = IssuerRequests(url, http_client, timeout=target.timeout, allow_private=False)
    try:
        server = await discover(requests, url, metadata_url, None)
    except AuthorizationFailed as error:
        return [Check("metadata", "failed", str(error), "No client can find out where to log in.")]
    issuer = server.issuer
    scopes = " ".join(server.scopes) or "none named"
    checks = [
        Check("metadata", "ok", f"resource {server.resource}, scopes: {scopes}"),
        Check("issuer", "ok", issuer.issuer),
        _check_pkce(issuer),
        _check_clients(issuer),
    ]
    if login is not None:
        checks.append(_check_audience(server, login))
    return checks


def _check_pkce(issuer: Issuer) -> Check:
    if issuer.authorization_endpoint is None:
        return Check("pkce", "absent", "none: no person can log in, only programs")
    if "S256" in issuer.code_challenge_methods_supported:
        return Check("pkce", "ok", "S256")
    advice = "Clients must refuse to log in. The issuer has to advertise code_challenge_methods_supported."
    return Check("pkce", "failed", "the issuer does not advertise S256", advice)


def _check_clients(issuer: Issuer) -> Check:
    ways = [
        *(["metadata documents"] if issuer.client_id_metadata_document_supported else []),
        *(["registration"] if issuer.registration_endpoint else []),
    ]
    if ways:
        return Check("clients", "ok", ", ".join(ways), data=ways)
    says = "none: register a client at the issuer by hand, and log in with --client-id"
    return Check("clients", "absent", says, data=ways)


def _check_audience(server: ProtectedServer, login: Login) -> Check:
    """Check for whom a stored access token is; only a JWT says so."""
    claims = _claims(login.access_token)
    if claims is None:
        return Check("audience", "ok", "the token is opaque")
    named = claims.get("aud")
    audience = named if isinstance(named, list) else [named]
    if server.resource in audience:
        return Check("audience", "ok", "the token is for this server")
    advice = "Another server may accept the same token. The issuer has to honour the resource parameter."
    return Check("audience", "advice", f"the token is not for {server.resource}", advice)


def _claims(token: str) -> dict[str, Any] | None:
    parts = token.split(".")
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded))
    except (IndexError, ValueError, RecursionError):
        return None
    return claims if len(parts) == 3 and isinstance(claims, dict) else None
