"""The public `OAuth`: settings for a client that gets its own access tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from antiphon.authorization.urls import problem_of_url, shown_url
from antiphon.client.oauth.browser import OpenBrowser
from antiphon.client.oauth.code_grant import CodeGrant
from antiphon.client.oauth.device_grant import DeviceGrant, ShowCode
from antiphon.client.oauth.grants import Assertion, AssertionGrant, Grant, ServiceGrant
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.client.oauth.logins import FileLogins, LoginStore, MemoryLogins
from antiphon.client.oauth.session import OAuthSession

__all__ = ["OAuth"]


class OAuth:
    """Logs a client in at servers that ask for tokens: `Client(url, auth=OAuth())`.

    A person logs in with a browser, once: the tokens are kept in `store`, by default in files under the
    user's state folder, and refreshed before they expire. Off a terminal no browser opens, and the client
    raises `AuthorizationFailed`; use `antiphon login URL` first, or pass `open_browser`.

    `client_id` and `client_secret` are those of a client that you have registered at the issuer, and
    `client_metadata_url` is the address of the client's metadata document. Without either, the client
    registers itself. `scopes` are asked for in addition to those that the server names. `issuer` is the only
    authorization server that you accept; a secret needs it, because the secret would otherwise go to every
    issuer that the server names. `redirect_port` is the loopback port that the browser comes back to, by
    default a free one. `show_code` shows a page and a code for a login with another device, in place of the
    browser. `interactive` says whether a person may be asked; by default, if there is a terminal or an
    `open_browser`. `relogin` ignores stored tokens. `login_timeout` is how long a person has to log in, and
    `request_timeout` how long an issuer has to respond, in seconds. `allow_private` lets a server on the
    internet name an issuer in a private network, and sends tokens to a server in a private network over
    plain http. Raises `ValueError` for a URL that cannot be used, and for a secret without an issuer.
    """

    ANY_ISSUER: Final = "*"
    """As `issuer`, sends the secret to every issuer that the server names. Unsafe outside of tests."""

    def __init__(
        self,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Antiphon",
        scopes: Sequence[str] | None = None,
        issuer: str | None = None,
        store: LoginStore | None = None,
        open_browser: OpenBrowser | None = None,
        show_code: ShowCode | None = None,
        interactive: bool | None = None,
        relogin: bool = False,
        redirect_port: int = 0,
        login_timeout: float = 300.0,
        request_timeout: float = 30.0,
        allow_private: bool = False,
    ) -> None:
        if client_secret is not None and client_id is None:
            raise ValueError("OAuth: client_secret= needs client_id=.")
        if client_secret is not None:
            _require_issuer("OAuth", issuer, "client_secret")
        if client_metadata_url is not None and (
            problem_of_url(client_metadata_url, query=True) or not client_metadata_url.startswith("https://")
        ):
            raise ValueError(
                f"OAuth: client_metadata_url={shown_url(client_metadata_url)!r} is not an https URL."
            )
        grant: Grant = (
            CodeGrant(
                client_id=client_id,
                client_secret=client_secret,
                client_metadata_url=client_metadata_url,
                client_name=client_name,
                redirect_port=redirect_port,
                open_browser=open_browser,
                login_timeout=login_timeout,
                interactive=interactive,
            )
            if show_code is None
            else DeviceGrant(
                client_id=client_id,
                client_secret=client_secret,
                client_metadata_url=client_metadata_url,
                client_name=client_name,
                show_code=show_code,
                login_timeout=login_timeout,
            )
        )
        self._set(
            grant,
            FileLogins() if store is None else store,
            scopes,
            issuer,
            request_timeout,
            allow_private,
        )
        self.reuses_login = not relogin

    @classmethod
    def service(
        cls,
        client_id: str,
        client_secret: str | None = None,
        *,
        private_key: str | None = None,
        algorithm: str = "ES256",
        scopes: Sequence[str] | None = None,
        issuer: str | None = None,
        request_timeout: float = 30.0,
        allow_private: bool = False,
    ) -> OAuth:
        """Return settings for a program that acts for itself, without a person.

        It has a secret, or a `private_key` as PEM text, with which it signs by `algorithm`. A secret goes to
        `issuer` alone. Raises `ValueError` without either and with both, and for a secret without an issuer.
        """
        if (client_secret is None) == (private_key is None):
            raise ValueError("OAuth.service: pass either client_secret or private_key=.")
        if client_secret is not None:
            _require_issuer("OAuth.service", issuer, "client_secret")
        grant = ServiceGrant(client_id, client_secret, private_key, algorithm)
        return cls._silent(grant, scopes, issuer, request_timeout, allow_private)

    @classmethod
    def assertion(
        cls,
        assertion: Assertion,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        scopes: Sequence[str] | None = None,
        issuer: str | None = None,
        request_timeout: float = 30.0,
        allow_private: bool = False,
    ) -> OAuth:
        """Return settings for a program that has a JWT of another issuer, such as that of its workload.

        `assertion` is the JWT, or a function that takes an `AssertionRequest` and returns one. For
        enterprise-managed authorization, pass an `IdTokenExchange`. A JWT and a secret go to `issuer` alone.
        Raises `ValueError` for either of them without an issuer.
        """
        if client_secret is not None:
            _require_issuer("OAuth.assertion", issuer, "client_secret")
        if not callable(assertion):
            _require_issuer("OAuth.assertion", issuer, "a JWT")
        grant = AssertionGrant(client_id, client_secret, assertion)
        return cls._silent(grant, scopes, issuer, request_timeout, allow_private)

    @classmethod
    def _silent(
        cls,
        grant: Grant,
        scopes: Sequence[str] | None,
        issuer: str | None,
        request_timeout: float,
        allow_private: bool,
    ) -> OAuth:
        made = cls.__new__(cls)
        made._set(grant, MemoryLogins(), scopes, issuer, request_timeout, allow_private)
        return made

    def _set(
        self,
        grant: Grant,
        store: LoginStore,
        scopes: Sequence[str] | None,
        issuer: str | None,
        request_timeout: float,
        allow_private: bool,
    ) -> None:
        if isinstance(scopes, str):
            raise ValueError(f"OAuth: scopes={scopes!r} is a string. Pass a list of scopes.")
        if issuer == self.ANY_ISSUER:
            issuer = None
        if issuer is not None and (problem := problem_of_url(issuer)):
            raise ValueError(f"OAuth: issuer={shown_url(issuer)!r} {problem}.")
        self.grant = grant
        self.store = store
        self.scopes = tuple(scopes or ())
        self.issuer = issuer
        self._request_timeout = request_timeout
        self._allow_private = allow_private
        self.reuses_login = True

    def __repr__(self) -> str:
        return f"OAuth({self.grant!r})"

    def authorization(self, url: str, connect: Callable[[], Any]) -> OAuthSession:
        """Return the authorization of the requests to a server, which an HTTP channel uses."""
        return OAuthSession(url, self, self.requests(url, connect))

    def requests(self, url: str, connect: Callable[[], Any]) -> IssuerRequests:
        """Return the requests to the issuer of a server."""
        return IssuerRequests(url, connect, timeout=self._request_timeout, allow_private=self._allow_private)


def _require_issuer(name: str, issuer: str | None, credential: str) -> None:
    """Raise `ValueError` for a credential that would go to every issuer that a server names.

    https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration
    """
    if issuer is None:
        raise ValueError(
            f"{name}: {credential} needs issuer=, the URL of the authorization server that it belongs to. "
            "Otherwise a server could name an issuer of its own, and get it."
        )
