"""Requests to the token endpoint: how a client authenticates there, and what a response must have.

A response becomes a `Login`. Messages name the error of the issuer, and never a token or a secret.
"""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.discovery import ProtectedServer
from antiphon.client.oauth.issuer_requests import Document, IssuerRequests
from antiphon.client.oauth.logins import Login, RegisteredClient
from antiphon.client.oauth.proofs import Prover
from antiphon.errors import AuthorizationFailed
from antiphon.printable import printable
from antiphon.transport.client.challenges import split_scopes

__all__ = [
    "IssuerRefused",
    "client_credentials",
    "new_login",
    "refresh",
    "revoke",
    "secret_method",
    "signed_assertion",
    "token_request",
]

_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_ASSERTION_SECONDS = 60
_MAX_SECONDS = 10 * 365 * 24 * 3600.0
"""The longest time that an issuer may name."""
_MAX_DIGITS = 12
_MAX_PROOFS = 3
"""How often a request is sent with another nonce."""
_MAX_DESCRIPTION_CHARACTERS = 300


class IssuerRefused(AuthorizationFailed):
    """The issuer refused a request. `error` is its error code."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


def secret_method(supported: tuple[str, ...]) -> str:
    """Return how a client with a secret authenticates at an issuer that supports these methods."""
    for method in ("client_secret_basic", "client_secret_post"):
        if method in supported:
            return method
    return "client_secret_basic"  # what RFC 8414 says of an issuer that names none


def client_credentials(client: RegisteredClient) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a form and the headers that authenticate a client."""
    if client.client_secret is None or client.method == "none":
        return {"client_id": client.client_id}, {}
    if client.method == "client_secret_post":
        return {"client_id": client.client_id, "client_secret": client.client_secret}, {}
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    return {}, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def signed_assertion(client_id: str, audience: str, private_key: str, algorithm: str) -> dict[str, str]:
    """Return the fields of a form that authenticate a client by its private key, which is a PEM text.

    https://datatracker.ietf.org/doc/html/rfc7523#section-2.2
    """
    from joserfc import jwt
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    kind: Any = {"ES": ECKey, "RS": RSAKey, "PS": RSAKey}.get(algorithm[:2], OKPKey)
    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": secrets.token_urlsafe(16),
    }
    key = kind.import_key(private_key)
    return {
        "client_id": client_id,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm]),
    }


async def token_request(
    requests: IssuerRequests,
    endpoint: str,
    form: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
    prover: Prover | None = None,
) -> dict[str, Any]:
    """Send a form to a token endpoint, and return the response; raises `AuthorizationFailed`.

    With a prover, the tokens in the response are bound to its key.
    """
    if prover is None:
        response = await requests.post_form(endpoint, form, headers)
    else:
        response = await _proven_request(requests, endpoint, form, headers or {}, prover)
    if response.status != 200 or "error" in response.values:
        raise refusal(endpoint, response)
    return response.values


async def _proven_request(
    requests: IssuerRequests,
    endpoint: str,
    form: Mapping[str, str],
    headers: Mapping[str, str],
    prover: Prover,
) -> Document:
    """Send a form with a proof, and again if the issuer asks for a nonce in it."""
    response = Document(0, {})
    for _ in range(_MAX_PROOFS):
        proven = {**headers, "dpop": prover.proof("POST", endpoint)}
        response = await requests.post_form(endpoint, form, proven)
        prover.take_nonce(endpoint, response.nonce)
        if response.values.get("error") != "use_dpop_nonce":
            break
    return response


def refusal(endpoint: str, response: Document) -> AuthorizationFailed:
    """Return the error for a response that has no token."""
    error = response.values.get("error")
    if not isinstance(error, str):
        return AuthorizationFailed(f"{shown_url(endpoint)} responded with the status {response.status}.")
    said = response.values.get("error_description")
    reason = printable(error, 100)
    if isinstance(said, str):
        reason += f" ({printable(said, _MAX_DESCRIPTION_CHARACTERS)})"
    return IssuerRefused(f"{shown_url(endpoint)} refused the request: {reason}.", error)


def new_login(
    url: str,
    server: ProtectedServer,
    client: RegisteredClient,
    response: Mapping[str, Any],
    asked: tuple[str, ...],
    prover: Prover | None = None,
) -> Login:
    """Return the login that a token response makes; raises `AuthorizationFailed`."""
    issuer = server.issuer
    base = Login(
        url=url,
        resource=server.resource,
        issuer=issuer.issuer,
        client=client,
        token_endpoint=issuer.token_endpoint,
        revocation_endpoint=issuer.revocation_endpoint,
        access_token="",  # nosec B106 # the response has it
        scopes=asked,
        proof_key=None if prover is None else prover.key,
    )
    return _renewed(base, response)


async def refresh(requests: IssuerRequests, login: Login, prover: Prover | None = None) -> Login:
    """Return a login with new tokens; raises `IssuerRefused` if a person has to log in again.

    Raises `AuthorizationFailed` if the issuer does not respond.
    """
    assert login.refresh_token is not None
    fields, headers = client_credentials(login.client)
    form = {
        "grant_type": "refresh_token",
        "refresh_token": login.refresh_token,
        "resource": login.resource,
        **fields,
    }
    return _renewed(login, await token_request(requests, login.token_endpoint, form, headers, prover))


async def revoke(requests: IssuerRequests, login: Login) -> bool:
    """Revoke the tokens of a login; returns whether the issuer can. Raises `AuthorizationFailed`."""
    if login.revocation_endpoint is None:
        return False
    fields, headers = client_credentials(login.client)
    tokens = {"refresh_token": login.refresh_token, "access_token": login.access_token}
    for kind, token in tokens.items():
        if token is not None:
            form = {"token": token, "token_type_hint": kind, **fields}
            response = await requests.post_form(login.revocation_endpoint, form, headers)
            # Many issuers cannot revoke access tokens, which are valid for a short time only.
            if response.status != 200 and response.values.get("error") != "unsupported_token_type":
                raise refusal(login.revocation_endpoint, response)
    return True


def _renewed(login: Login, response: Mapping[str, Any]) -> Login:
    endpoint = shown_url(login.token_endpoint)
    token, kind = response.get("access_token"), response.get("token_type")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AuthorizationFailed(f"{endpoint} responded without an access token.")
    scheme = kind.lower() if isinstance(kind, str) else ""
    if scheme != "bearer" and (scheme != "dpop" or login.proof_key is None):
        raise AuthorizationFailed(f"{endpoint} responded with a token that is not a bearer token.")
    lifetime, renewal = read_seconds(response.get("expires_in")), response.get("refresh_token")
    now = time.time()
    return msgspec.structs.replace(
        login,
        access_token=token,
        # An issuer that does not rotate refresh tokens leaves the token out: the old one stays valid.
        refresh_token=renewal if isinstance(renewal, str) and renewal else login.refresh_token,
        scopes=split_scopes(response.get("scope")) or login.scopes,
        obtained_at=now,
        # An issuer that ignores proofs issues a bearer token.
        proof_key=login.proof_key if scheme == "dpop" else None,
        expires_at=None if lifetime is None else now + lifetime,
    )


def read_seconds(value: object) -> float | None:
    """Return a number of seconds in a response, at least 0; `None` if it is none, or if it is absurd."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= _MAX_SECONDS:
        return None
    return float(value) if value > 0 else 0.0
