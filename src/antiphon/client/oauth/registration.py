"""Chooses the client id for an issuer, in the order of the specification.

A client that you registered comes first, then the client's metadata document, then dynamic registration.
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration
"""

from __future__ import annotations

import secrets
from typing import Any

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.discovery import Issuer
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.client.oauth.logins import RegisteredClient
from antiphon.client.oauth.token_requests import (
    IssuerRefused,
    client_credentials,
    refusal,
    secret_method,
    token_request,
)
from antiphon.errors import AuthorizationFailed

__all__ = ["DEVICE_CODE", "configured_client", "given_client", "is_registered", "register"]

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
_NAME_THE_CLIENT = "pass its id: client_id=, or --client-id on the command line."


def given_client(issuer: Issuer, client_id: str, client_secret: str | None) -> RegisteredClient:
    """Return the client that the user has registered."""
    method = "none" if client_secret is None else secret_method(issuer.token_endpoint_auth_methods_supported)
    return RegisteredClient(client_id, client_secret, method)


def configured_client(
    issuer: Issuer, client_id: str | None, client_secret: str | None, metadata_url: str | None
) -> RegisteredClient | None:
    """Return the client that the user has registered, or describes in a document; `None` for neither.

    An issuer that does not read documents knows no client by the URL of one.
    """
    if client_id is not None:
        return given_client(issuer, client_id, client_secret)
    if metadata_url is not None and issuer.client_id_metadata_document_supported:
        return RegisteredClient(metadata_url)
    return None


async def register(
    requests: IssuerRequests, issuer: Issuer, name: str, redirect_uri: str | None
) -> RegisteredClient:
    """Register a client at an issuer; raises `AuthorizationFailed`.

    A client without a redirect URI is one that shows a code.
    """
    endpoint = issuer.registration_endpoint
    if endpoint is None:
        raise AuthorizationFailed(
            f"The authorization server {shown_url(issuer.issuer)} lets no client register itself. Register "
            f"one by hand, with the redirect URI {redirect_uri or 'that it asks for'}, and {_NAME_THE_CLIENT}"
        )
    supported = issuer.token_endpoint_auth_methods_supported
    method = "none" if not supported or "none" in supported else secret_method(supported)
    # It names no scopes: a client that is registered for some could not ask for further ones later.
    metadata: dict[str, Any] = {
        "client_name": name,
        "redirect_uris": [redirect_uri] if redirect_uri else [],
        "grant_types": ["authorization_code" if redirect_uri else DEVICE_CODE, "refresh_token"],
        "response_types": ["code"] if redirect_uri else [],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    }
    response = await requests.post_json(endpoint, metadata)
    values = response.values
    client_id, secret = values.get("client_id"), values.get("client_secret")
    if response.status not in (200, 201) or not isinstance(client_id, str) or not client_id:
        raise AuthorizationFailed(
            f"{refusal(endpoint, response)} Register a client there by hand, and {_NAME_THE_CLIENT}"
        )
    agreed = values.get("token_endpoint_auth_method")
    if not isinstance(secret, str) or not secret:
        secret, agreed = None, "none"
    elif not isinstance(agreed, str):
        agreed = method if method != "none" or "none" in supported else secret_method(supported)
    return RegisteredClient(client_id, secret, agreed, redirect_uri)


async def is_registered(requests: IssuerRequests, issuer: Issuer, client: RegisteredClient) -> bool:
    """Return whether an issuer still knows a client that was registered before.

    An issuer shows the page of a login with an unknown client to the person only, and does not tell the
    program. The token endpoint does: it checks the client before the code, which is invalid here. Raises
    `AuthorizationFailed` if the issuer does not respond.
    """
    fields, headers = client_credentials(client)
    form = {
        "grant_type": "authorization_code",
        "code": secrets.token_urlsafe(24),
        "redirect_uri": client.redirect_uri or "",
        "code_verifier": secrets.token_urlsafe(48),
        **fields,
    }
    try:
        await token_request(requests, issuer.token_endpoint, form, headers)
    except IssuerRefused as error:
        return error.error != "invalid_client"
    return True
