"""The authentication that an adopted server has itself, as the `authenticate` function of this library.

A token verifier of the other library decides which tokens are accepted, and its scopes are needed for every
request. A server that issues its own tokens needs routes beside the MCP endpoint, which this library does not
serve. It is refused: a server must not become open to everybody because another program serves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from antiphon.authentication import Authenticate
from antiphon.authorization.protected_resource import ProtectedResource
from antiphon.errors import DefinitionError, Forbidden, Unauthorized
from antiphon.model.identity import Principal

__all__ = ["TokenPrincipal", "VerifiedTokens", "checks_callers", "own_authentication"]

_FASTMCP_AUTH = "fastmcp.server.auth.auth"
_LIBRARIES = ("fastmcp.", "mcp.")
_PATH = "/mcp"
"""The path of the endpoint. FastMCP adds it to the address of the server to get the URL of the resource."""


@dataclass(frozen=True, slots=True)
class TokenPrincipal(Principal):
    """A caller whose token the adopted server has verified."""

    access_token: Any = field(default=None, compare=False, repr=False)
    """The token, as the adopted server knows it."""


class VerifiedTokens:
    """Authenticates callers by the token verifier of an adopted server.

    `scopes` are those that every request needs. `resource` is the public URL of the endpoint, and `issuers`
    are the authorization servers that callers get tokens from. With `only_for`, a token has to be for that
    URL.
    """

    def __init__(
        self,
        verifier: Any,
        scopes: Sequence[str] = (),
        *,
        resource: str | None = None,
        issuers: Sequence[str] = (),
        only_for: Any = None,
    ) -> None:
        from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend

        options = {} if only_for is None else {"resource_server_url": only_for}
        self._backend = BearerAuthBackend(verifier, **options)
        self._scopes = tuple(scopes)
        self.protected_resource: ProtectedResource | None = None
        """The metadata of the server, which this library serves; `None` if the issuers are not known."""
        if resource is not None and issuers:
            self.protected_resource = ProtectedResource(resource, issuers, self._scopes)

    async def __call__(self, headers: Mapping[str, str]) -> Principal:
        """Return the principal of a token; raises `Unauthorized`, and `Forbidden` if it lacks a scope."""
        resource = self.protected_resource
        if not headers.get("authorization", "").lower().startswith("bearer "):
            challenge = "Bearer" if resource is None else resource.challenge()
            raise Unauthorized("Send an access token: Authorization: Bearer …", challenge=challenge)
        found = await self._backend.authenticate(SimpleNamespace(headers=headers))
        if found is None:
            challenge = (
                'Bearer error="invalid_token"' if resource is None else resource.challenge("invalid_token")
            )
            raise Unauthorized(
                "The token is not accepted by this server. Get another one.", challenge=challenge
            )
        token: Any = found[1].access_token
        missing = [scope for scope in self._scopes if scope not in token.scopes]
        if missing and resource is None:  # otherwise the server refuses, and its challenge names the scopes
            raise Forbidden(f"The token does not have the scope {missing[0]}. Get a token that has it.")
        claims = dict(getattr(token, "claims", None) or {})
        return TokenPrincipal(
            _principal_id(token, claims), frozenset(token.scopes), claims, token.expires_at, token
        )


def checks_callers(server: Any) -> bool:
    """Return whether a server may find out over HTTP who calls, and refuse a caller.

    Besides authentication, middleware of its author may do so: it can read the headers of a request.
    """
    if _is_fastmcp(server):
        is_authenticating = server.auth is not None
    else:
        is_authenticating = getattr(getattr(server, "settings", None), "auth", None) is not None
    return is_authenticating or any(
        _may_check(middleware) for part in _parts(server) for middleware in getattr(part, "middleware", ())
    )


def _may_check(middleware: Any) -> bool:
    """Return whether middleware may check who calls: that of the libraries says so by its name."""
    module = getattr(middleware, "__module__", "")
    return not module.startswith(_LIBRARIES) or module.endswith(".authorization")


def _parts(server: Any) -> Iterator[Any]:
    """Yield a server with the low-level server in it, and the servers that it mounts."""
    yield server
    yield from filter(None, (getattr(server, name, None) for name in ("_lowlevel_server", "_mcp_server")))
    for each in (*getattr(server, "_mounted_servers", ()), *getattr(server, "providers", ())):
        mounted = getattr(each, "_inner", each)
        if (inner := getattr(mounted, "server", None)) is not None:
            yield from _parts(inner)


def own_authentication(server: Any) -> Authenticate | None:
    """Return the authentication that a server has itself; `None` if it has none.

    Raises `DefinitionError` if this library cannot do what the server does.
    """
    if _is_fastmcp(server):
        return _of_fastmcp(server)
    settings = getattr(getattr(server, "settings", None), "auth", None)
    if settings is None:
        return None
    if server._auth_server_provider is not None:
        raise _refusal(server, type(server._auth_server_provider).__name__)
    resource = settings.resource_server_url
    return VerifiedTokens(
        server._token_verifier,
        settings.required_scopes or (),
        resource=None if resource is None else str(resource),
        issuers=[str(settings.issuer_url)],
        only_for=resource if getattr(settings, "validate_token_resource", False) else None,
    )


def _is_fastmcp(server: Any) -> bool:
    return any(base.__module__ == "fastmcp.server.server" for base in type(server).__mro__)


def _of_fastmcp(server: Any) -> Authenticate | None:
    auth = server.auth
    if auth is None:
        return None
    known = {base.__name__ for base in type(auth).__mro__ if base.__module__ == _FASTMCP_AUTH}
    if "RemoteAuthProvider" in known:
        auth.set_mcp_path(_PATH)
        return VerifiedTokens(
            auth,
            auth.required_scopes,
            resource=str(auth._get_resource_url(_PATH)),
            issuers=[str(each) for each in auth.authorization_servers],
        )
    if "TokenVerifier" in known or ("MultiAuth" in known and auth.server is None):
        return VerifiedTokens(auth, auth.required_scopes)
    raise _refusal(server, type(auth).__name__)


def _refusal(server: Any, name: str) -> DefinitionError:
    return DefinitionError(
        f"The server {server.name!r} authenticates its callers with {name}, which issues tokens itself. "
        "Antiphon cannot do that, and does not serve it to everybody instead. Pass adopt(…, authenticate=…), "
        "for example with IssuedTokens. If callers need no authentication, because something in front of the "
        "server authenticates them, pass authenticate=None, or --allow-anonymous on the command line."
    )


def _principal_id(token: Any, claims: Mapping[str, Any]) -> str:
    """Return the id of a caller: the issuer and the subject of its token, or else the id of its client."""
    subject = getattr(token, "subject", None) or claims.get("sub")
    if subject:
        return f"{claims.get('iss') or ''}#{subject}"
    return str(token.client_id).replace("#", "%23")  # it cannot look like a subject
