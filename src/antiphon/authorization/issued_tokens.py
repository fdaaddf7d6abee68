"""`IssuedTokens`: authenticates callers by access tokens of OAuth authorization servers.

Owns the path from an `Authorization` header to a principal. The verifiers know tokens; the runtime checks the
scopes of tools.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from antiphon import wall_clock
from antiphon.authorization.claims import InvalidToken, principal_id
from antiphon.authorization.introspection import Introspection
from antiphon.authorization.issuer import Issuer
from antiphon.authorization.issuer_requests import IssuerUnavailable
from antiphon.authorization.jwt_verifier import ALGORITHMS, JwtVerifier, is_jwt
from antiphon.authorization.key_cache import KeyCache
from antiphon.authorization.protected_resource import ProtectedResource
from antiphon.authorization.scope_sets import ImpliedScopes, checked_scopes, read_scopes
from antiphon.authorization.token_cache import TokenCache
from antiphon.authorization.urls import problem_of_url, shown_url
from antiphon.errors import Busy, DefinitionError, InvalidRequest, Unauthorized
from antiphon.model.identity import Principal, problem_of

__all__ = ["IssuedTokens", "PrincipalOf"]

PrincipalOf: TypeAlias = Callable[[Mapping[str, Any]], Principal | Awaitable[Principal | None] | None]
"""Returns the principal of a token from its verified claims, or `None` to refuse the token with a 401."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters of a bearer token. https://datatracker.ietf.org/doc/html/rfc6750#section-2.1"""
_MAX_TOKEN_CHARACTERS = 16 * 1024
_RETRY_AFTER_SECONDS = 5
"""When a caller should try again after an issuer was unavailable."""


class IssuedTokens:
    """Authenticates callers by access tokens that an authorization server issued.

    Which tokens are accepted:

    - `issuer`: the URL of the issuer, an `Issuer`, or a list of these.
    - `resource`: the public URL of the MCP endpoint. It is not guessed from requests.
    - `audience`: the audiences that a token may be for; by default the `resource`.
    - `algorithms`: the algorithms of signatures that are accepted.
    - `leeway`: how many seconds the clocks of the issuer and of this server may differ.

    What callers may do:

    - `scopes`: the scopes that every request needs. Tools, resources and prompts can need more.
    - `implies`: the scopes that a scope includes, such as `{"admin": ["notes:write"]}`.
    - `scope_claims`: the claims that hold the scopes of a token.
    - `scope_prefix`: a text that clients put before a scope to ask for it, and that tokens do not have.
    - `principal`: a function that returns the `Principal` for verified claims, or `None` to refuse the token.
      The default has the id `issuer#subject`, or `client:issuer#client_id` for a client that acts for
      itself, and all claims.

    How the server works:

    - `metadata_url`: the URL of the metadata document that challenges name, if a proxy serves it elsewhere.
    - `cache_seconds`: how long a verified token is not verified again; never beyond its expiry.
    - `max_cached_tokens`: how many verified tokens are cached.
    - `key_cooldown`: how many seconds pass between two requests for the keys of an issuer.
    - `request_timeout`: how many seconds an issuer has to respond.

    Raises `DefinitionError` if an option is invalid.
    """

    def __init__(
        self,
        issuer: str | Issuer | Sequence[str | Issuer],
        *,
        resource: str,
        audience: str | Sequence[str] | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        leeway: float = 30.0,
        scopes: Sequence[str] = (),
        implies: Mapping[str, Sequence[str]] | None = None,
        scope_claims: Sequence[str] = ("scope", "scp"),
        scope_prefix: str = "",
        principal: PrincipalOf | None = None,
        metadata_url: str | None = None,
        cache_seconds: float = 60.0,
        max_cached_tokens: int = 10_000,
        key_cooldown: float = 30.0,
        request_timeout: float = 5.0,
    ) -> None:
        issuers = _issuers(issuer)
        for name, url in (("resource", resource), ("metadata_url", metadata_url)):
            if url is not None and (problem := problem_of_url(url)):
                raise DefinitionError(
                    f"IssuedTokens: {name}={shown_url(url)!r} {problem}. Use the public URL."
                )
        audiences = _audiences(resource if audience is None else audience)
        unknown = [name for name in algorithms if name not in ALGORITHMS]
        if unknown or not algorithms:
            raise DefinitionError(
                f"IssuedTokens: algorithms={list(algorithms)!r} is invalid. "
                f"Use some of {', '.join(ALGORITHMS)}."
            )
        for name, seconds in (
            ("leeway", leeway),
            ("cache_seconds", cache_seconds),
            ("key_cooldown", key_cooldown),
            ("request_timeout", request_timeout),
        ):
            if not 0 <= seconds < float("inf"):
                raise DefinitionError(f"IssuedTokens: {name}={seconds!r} is not a number of seconds.")
        if max_cached_tokens < 1:
            raise DefinitionError("IssuedTokens: max_cached_tokens must be at least 1.")
        self.protected_resource = ProtectedResource(
            resource,
            [each.url for each in issuers],
            checked_scopes("scopes", scopes),
            scope_prefix=scope_prefix,
            metadata_url=metadata_url,
        )
        """The metadata of the server and its challenges. The server serves the document."""
        self._has_several_issuers = len(issuers) > 1
        self._jwts = JwtVerifier(
            {each.url: KeyCache(each, cooldown=key_cooldown, timeout=request_timeout) for each in issuers},
            audiences=audiences,
            algorithms=algorithms,
            leeway=leeway,
        )
        self._introspection = _introspection(
            issuers, audiences=audiences, leeway=leeway, cooldown=key_cooldown, timeout=request_timeout
        )
        self._implied = ImpliedScopes(implies or {})
        self._scope_claims = tuple(scope_claims)
        self._scope_prefix = scope_prefix
        self._leeway = leeway
        self._principal_of = principal
        self._cache = TokenCache(max_tokens=max_cached_tokens, seconds=cache_seconds)
        self._challenge = self.protected_resource.challenge

    def __call__(self, headers: Mapping[str, str]) -> Principal | Awaitable[Principal]:
        """Return the principal of a token.

        Raises `Unauthorized` without a token or for an invalid one, `InvalidRequest` for a malformed header,
        and `Busy` if the issuer is unavailable.
        """
        credentials = headers.get("authorization")
        if credentials is None:
            raise Unauthorized("Send an access token: Authorization: Bearer …", challenge=self._challenge())
        return self._cache.find(credentials) or self._verify(credentials)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata document of the server, for an app that serves it at an address of its own."""
        return self.protected_resource.metadata()

    async def _verify(self, credentials: str) -> Principal:
        """Return the principal of an `Authorization` header, and cache it."""
        token = self._token(credentials)
        try:
            if is_jwt(token):
                claims, expires = await self._jwts.verify(token)
            elif self._introspection is not None:
                claims, expires = await self._introspection.verify(token)
            else:
                raise InvalidToken("The token is not a JWT, and this server does not introspect tokens.")
            principal = await self._principal(claims, expires)
        except InvalidToken as error:
            challenge = self._challenge("invalid_token", str(error))
            raise Unauthorized(f"{error} Get another one.", challenge=challenge) from None
        except IssuerUnavailable:  # the verifier has logged it
            raise Busy(
                "The issuer of your token is unavailable, so the token cannot be verified: try again.",
                retry_after=_RETRY_AFTER_SECONDS,
            ) from None
        self._cache.add(credentials, principal, min(expires, principal.expires_at or expires))
        return principal

    def _token(self, credentials: str) -> str:
        """Return the token in an `Authorization` header; raises `Unauthorized` or `InvalidRequest`."""
        scheme, _, token = credentials.strip().partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("Send an access token: Authorization: Bearer …", challenge=self._challenge())
        token = token.strip(" ")
        if not _TOKEN.fullmatch(token) or len(token) > _MAX_TOKEN_CHARACTERS:
            problem = "The Authorization header is malformed."
            error = InvalidRequest(f"{problem} Send Authorization: Bearer …")
            error.headers = (("www-authenticate", self._challenge("invalid_request", problem)),)
            raise error
        return token

    async def _principal(self, claims: Mapping[str, Any], expires: float) -> Principal:
        issuer, until = str(claims["iss"]), expires + self._leeway
        if self._principal_of is None:
            found = Principal(principal_id(claims), self._scopes(claims), claims, until)
            if problem_of(found) is not None:
                raise InvalidToken("The subject of the token has characters that cannot be stored.")
        else:
            given = self._principal_of(claims)
            principal = await given if inspect.isawaitable(given) else given
            if principal is None:
                raise InvalidToken("The token is not accepted by this server.")
            if principal.expires_at is not None:
                until = min(until, principal.expires_at)
                if until <= wall_clock.now():
                    raise InvalidToken("The token has expired.")
            # Two issuers may give the same name to different people.
            is_prefixed = self._has_several_issuers and principal.id  # the server refuses an empty id
            id = f"{issuer}#{principal.id}" if is_prefixed else principal.id
            found = Principal(id, self._implied.expand(principal.scopes), principal.claims, until)
        return found

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        granted = read_scopes(claims, self._scope_claims)
        return self._implied.expand(scope.removeprefix(self._scope_prefix) for scope in granted)


def _issuers(given: Any) -> list[Issuer]:
    """Return the issuers of a setting; raises `DefinitionError`."""
    several = [given] if isinstance(given, str | Issuer) else list(given)
    issuers = [each if isinstance(each, Issuer) else Issuer(each) for each in several]
    if not issuers:
        raise DefinitionError("IssuedTokens needs at least one issuer.")
    if len({issuer.url for issuer in issuers}) < len(issuers):
        raise DefinitionError("IssuedTokens: two issuers have the same URL. Remove one of them.")
    return issuers


def _audiences(given: Any) -> frozenset[str]:
    audiences = [given] if isinstance(given, str) else list(given)
    if not audiences or not all(isinstance(each, str) and each for each in audiences):
        raise DefinitionError(
            f"IssuedTokens: audience={given!r} is invalid. Pass the audience of the tokens, or leave it out."
        )
    return frozenset(audiences)


def _introspection(issuers: Sequence[Issuer], **options: Any) -> Introspection | None:
    """Return the introspection of tokens that are not JWTs, or `None`; raises `DefinitionError`."""
    asked = [issuer for issuer in issuers if issuer.introspects]
    if len(asked) > 1:
        raise DefinitionError(
            "IssuedTokens: only one issuer can introspect tokens. Nothing in such a token names its issuer, "
            "so it would be sent to issuers that did not issue it."
        )
    return Introspection(asked[0], **options) if asked else None
