"""The ways to get tokens without a person: client credentials, and assertions of another issuer.

A grant gets everything about the server from its caller, and returns a login. It keeps no state.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.discovery import ProtectedServer
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.client.oauth.logins import Login, LoginStore, RegisteredClient
from antiphon.client.oauth.proofs import Prover
from antiphon.client.oauth.registration import given_client
from antiphon.client.oauth.token_requests import (
    client_credentials,
    new_login,
    signed_assertion,
    token_request,
)
from antiphon.errors import AuthorizationFailed

__all__ = [
    "Assertion",
    "AssertionGrant",
    "AssertionRequest",
    "Grant",
    "IdTokenExchange",
    "LoginRequest",
    "ServiceGrant",
]

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


@dataclass(frozen=True)
class LoginRequest:
    """What a grant needs to know to get tokens for one server."""

    url: str
    server: ProtectedServer
    scopes: tuple[str, ...]
    requests: IssuerRequests
    store: LoginStore
    prover: Prover | None = None
    """Signs proofs, if the server accepts only tokens that are bound to a key."""

    def access(self, scopes: tuple[str, ...]) -> dict[str, str]:
        """Return the fields of a request that name the access which it asks for."""
        fields = {"resource": self.server.resource}
        if scopes:
            fields["scope"] = " ".join(scopes)
        if "offline_access" in scopes:
            fields["prompt"] = "consent"  # OpenID Connect ignores the scope without it
        return fields

    async def tokens(self, form: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, Any]:
        """Send a form to the token endpoint, and return the response; raises `AuthorizationFailed`."""
        endpoint = self.server.issuer.token_endpoint
        return await token_request(self.requests, endpoint, form, headers, self.prover)

    def login(self, client: RegisteredClient, response: Mapping[str, Any], scopes: tuple[str, ...]) -> Login:
        """Return the login that a token response makes; raises `AuthorizationFailed`."""
        return new_login(self.url, self.server, client, response, scopes, self.prover)


class Grant(Protocol):
    """A way to get tokens."""

    @property
    def is_silent(self) -> bool:
        """Whether no person takes part."""

    @property
    def client_id(self) -> str | None:
        """The client id, if the user has given one."""

    async def obtain(self, request: LoginRequest) -> Login:
        """Return a login with new tokens; raises `AuthorizationFailed`."""


@dataclass(frozen=True)
class ServiceGrant:
    """Client credentials: a program that acts for itself, with a secret or with a private key."""

    client_id: str
    client_secret: str | None
    private_key: str | None
    algorithm: str
    is_silent = True

    def __repr__(self) -> str:
        return f"ServiceGrant({self.client_id!r})"

    async def obtain(self, request: LoginRequest) -> Login:
        """Return a login with new tokens; raises `AuthorizationFailed`."""
        issuer = request.server.issuer
        client = given_client(issuer, self.client_id, self.client_secret)
        if self.private_key is not None:
            fields = signed_assertion(self.client_id, issuer.issuer, self.private_key, self.algorithm)
            headers: dict[str, str] = {}
        else:
            fields, headers = client_credentials(client)
        form = {"grant_type": "client_credentials", **request.access(request.scopes), **fields}
        response = await request.tokens(form, headers)
        public = RegisteredClient(self.client_id)  # a login in a file must not hold the secret of a service
        return request.login(public, response, request.scopes)


@dataclass(frozen=True)
class AssertionRequest:
    """What an assertion is for: the issuer that reads it, the resource, and the scopes."""

    issuer: str
    resource: str
    scopes: tuple[str, ...]
    requests: IssuerRequests


Assertion: TypeAlias = str | Callable[[AssertionRequest], str | Awaitable[str]]
"""A JWT, or a function, plain or async, that returns one for each token."""


@dataclass(frozen=True)
class AssertionGrant:
    """A JWT of another issuer in exchange for tokens.

    https://datatracker.ietf.org/doc/html/rfc7523#section-2.1
    """

    client_id: str | None
    client_secret: str | None
    assertion: Assertion
    is_silent = True

    def __repr__(self) -> str:
        return f"AssertionGrant({self.client_id!r})"

    async def obtain(self, request: LoginRequest) -> Login:
        """Return a login with new tokens; raises `AuthorizationFailed`."""
        issuer = request.server.issuer
        assertion = self.assertion
        if callable(assertion):
            wanted = AssertionRequest(
                issuer.issuer, request.server.resource, request.scopes, request.requests
            )
            made = assertion(wanted)
            assertion = await made if inspect.isawaitable(made) else made
        form = {"grant_type": _JWT_BEARER, "assertion": assertion, **request.access(request.scopes)}
        headers: dict[str, str] = {}
        if self.client_id is not None:
            fields, headers = client_credentials(given_client(issuer, self.client_id, self.client_secret))
            form |= fields
        response = await request.tokens(form, headers)
        return request.login(RegisteredClient(self.client_id or ""), response, request.scopes)


@dataclass(frozen=True)
class IdTokenExchange:
    """Exchanges the ID token of a person for an assertion that another issuer accepts (RFC 8693).

    Pass it to `OAuth.assertion` for enterprise-managed authorization. `token_endpoint` and the client are
    those of the identity provider. `id_token` is the ID token, or a function that returns it.
    https://github.com/modelcontextprotocol/ext-auth
    """

    id_token: str | Callable[[], str | Awaitable[str]]
    token_endpoint: str
    client_id: str
    client_secret: str | None = None

    def __repr__(self) -> str:
        return f"IdTokenExchange({shown_url(self.token_endpoint)!r})"

    async def __call__(self, request: AssertionRequest) -> str:
        """Return an assertion for an issuer; raises `AuthorizationFailed`."""
        token = self.id_token
        if callable(token):
            made = token()
            token = await made if inspect.isawaitable(made) else made
        method = "none" if self.client_secret is None else "client_secret_basic"
        fields, headers = client_credentials(RegisteredClient(self.client_id, self.client_secret, method))
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": _ID_JAG,
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",  # nosec B105 # a type
            "audience": request.issuer,
            "resource": request.resource,
            **fields,
        }
        if request.scopes:
            form["scope"] = " ".join(request.scopes)
        response = await token_request(request.requests, self.token_endpoint, form, headers)
        assertion = response.get("access_token")
        is_expected = response.get("issued_token_type") == _ID_JAG
        # A token of another type, such as an access token of the provider, must not go to another issuer.
        if not isinstance(assertion, str) or not assertion or not is_expected:
            raise AuthorizationFailed(f"{shown_url(self.token_endpoint)} responded without an assertion.")
        return assertion
