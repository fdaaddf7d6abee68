"""The login of a person in a browser: the authorization code grant with PKCE.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#authorization-flow-steps
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import secrets
import shlex
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.browser import OpenBrowser, has_terminal, open_browser
from antiphon.client.oauth.discovery import Issuer
from antiphon.client.oauth.grants import LoginRequest
from antiphon.client.oauth.logins import Login, RegisteredClient
from antiphon.client.oauth.loopback_listener import LoopbackListener
from antiphon.client.oauth.registration import configured_client, is_registered, register
from antiphon.client.oauth.token_requests import IssuerRefused, client_credentials
from antiphon.errors import AuthorizationFailed
from antiphon.printable import printable

__all__ = ["CodeGrant", "check_browser_login", "with_offline_access"]

logger = logging.getLogger("antiphon.client")

_RECENT_SECONDS = 3600.0
"""For how long after a login the issuer is taken to know the client that was registered for it."""
_UNKNOWN_CLIENT = ("invalid_client", "unauthorized_client")
"""The errors of an issuer that may have deleted a registration."""


@dataclass(frozen=True)
class CodeGrant:
    """Asks a person to log in with a browser, and waits for at most `login_timeout` seconds."""

    client_id: str | None
    client_secret: str | None
    client_metadata_url: str | None
    client_name: str
    redirect_port: int
    open_browser: OpenBrowser | None
    login_timeout: float
    interactive: bool | None
    is_silent = False

    def __repr__(self) -> str:
        return f"CodeGrant({self.client_id!r})"

    async def obtain(self, request: LoginRequest) -> Login:
        """Return a login with new tokens; raises `AuthorizationFailed`."""
        show = self.open_browser or open_browser
        may_ask = self.interactive
        if may_ask is None:
            may_ask = self.open_browser is not None or has_terminal()
        if not may_ask:
            url = shown_url(request.url)
            # The scopes come from the server, and a person may copy the command into a shell.
            options = "".join(f" --scope {shlex.quote(scope)}" for scope in request.scopes)
            raise AuthorizationFailed(
                f"{url} requires a login. Log in first: antiphon login {shlex.quote(url)}{options}"
            )
        check_browser_login(request.server.issuer)
        known = await self._known_client(request)
        if known is None:
            return await self._log_in(request, None, show)
        try:
            return await self._log_in(request, known, show)
        except IssuerRefused as error:
            if error.error not in _UNKNOWN_CLIENT:
                raise
            self._forget_client(request, known)
        return await self._log_in(request, None, show)

    async def _log_in(
        self, request: LoginRequest, known: RegisteredClient | None, show: OpenBrowser
    ) -> Login:
        issuer = request.server.issuer
        async with self._listener(known) as listener:
            client = await self._client(request, known, listener.redirect_uri)
            scopes = with_offline_access(issuer, request.scopes)
            attempt = _Attempt(request, client, listener.redirect_uri, scopes)
            try:
                async with asyncio.timeout(self.login_timeout):
                    code = await _code(attempt, listener, show)
            except TimeoutError:
                raise AuthorizationFailed(
                    f"Nobody has logged in to {shown_url(issuer.issuer)} within {self.login_timeout:g} s. "
                    "Log in again, or wait longer with login_timeout=."
                ) from None
        fields, headers = client_credentials(client)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
            "resource": request.server.resource,
            **fields,
        }
        return request.login(client, await request.tokens(form, headers), scopes)

    def _configured_client(self, request: LoginRequest) -> RegisteredClient | None:
        issuer = request.server.issuer
        return configured_client(issuer, self.client_id, self.client_secret, self.client_metadata_url)

    async def _known_client(self, request: LoginRequest) -> RegisteredClient | None:
        """Return the client that this program has registered at the issuer before, if the issuer knows it."""
        issuer = request.server.issuer
        if self._configured_client(request) is not None:
            return None
        found = request.store.find(request.url, issuer=issuer.issuer)
        if found is None or found.client.redirect_uri is None:
            return None
        is_recent = time.time() - found.obtained_at < _RECENT_SECONDS
        if is_recent or await is_registered(request.requests, issuer, found.client):
            return found.client
        self._forget_client(request, found.client)
        return None

    def _forget_client(self, request: LoginRequest, client: RegisteredClient) -> None:
        """Remove the login of a client that the issuer does not know any more."""
        issuer = request.server.issuer.issuer
        logger.info("%s has deleted the client %s. Registering another one.", shown_url(issuer), client)
        login = request.store.find(request.url, client_id=client.client_id, issuer=issuer)
        if login is not None:
            with contextlib.suppress(OSError):  # the new login is stored anyway, and is newer
                request.store.remove(login)

    def _listener(self, known: RegisteredClient | None) -> LoopbackListener:
        """Return a listener on the port that the client is registered with, if that port is free."""
        if self.redirect_port or known is None or known.redirect_uri is None:
            return LoopbackListener(self.redirect_port)
        return LoopbackListener(urlsplit(known.redirect_uri).port or 0, or_another=True)

    async def _client(
        self, request: LoginRequest, known: RegisteredClient | None, redirect_uri: str
    ) -> RegisteredClient:
        configured = self._configured_client(request)
        if configured is not None:
            return configured
        if known is not None and known.redirect_uri == redirect_uri:
            return known
        return await register(request.requests, request.server.issuer, self.client_name, redirect_uri)


class _Attempt:
    """One authorization request: what its response is compared with."""

    def __init__(
        self, request: LoginRequest, client: RegisteredClient, redirect_uri: str, scopes: tuple[str, ...]
    ) -> None:
        issuer = self.issuer = request.server.issuer
        self.redirect_uri = redirect_uri
        self.verifier = secrets.token_urlsafe(48)
        self.state = secrets.token_urlsafe(24)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            **request.access(scopes),
        }
        if request.prover is not None:
            query["dpop_jkt"] = request.prover.thumbprint
        endpoint = issuer.authorization_endpoint or ""
        self.url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def code(self, came_back: str) -> str | None:
        """Return the code in the address that a browser was sent back to.

        Returns `None` if the address belongs to another attempt; raises `AuthorizationFailed`.
        """
        answer = {name: values[0] for name, values in parse_qs(urlsplit(came_back.strip()).query).items()}
        if not secrets.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            return None
        shown = shown_url(self.issuer.issuer)
        issuer = answer.get("iss")
        if issuer is None and self.issuer.authorization_response_iss_parameter_supported:
            raise AuthorizationFailed(f"The response to the login does not name its issuer, {shown}.")
        if issuer is not None and issuer != self.issuer.issuer:
            # Nothing else in the response of another issuer may be used, not even its error.
            raise AuthorizationFailed(f"The response to the login is not from the issuer {shown}.")
        if "error" in answer:
            said = printable(answer.get("error_description", ""), 300)
            reason = f"{printable(answer['error'], 100)}{f' ({said})' if said else ''}"
            raise IssuerRefused(f"{shown} refused the login: {reason}.", answer["error"])
        if not answer.get("code"):
            raise AuthorizationFailed(f"The response to the login at {shown} has no code.")
        return answer["code"]


async def _code(attempt: _Attempt, listener: LoopbackListener, show: OpenBrowser) -> str:
    """Show the page, and return the code that comes back through the browser or from `show` itself."""
    showing = asyncio.ensure_future(_shown(show, attempt.url))
    try:
        while True:
            coming = asyncio.ensure_future(listener.next_url())
            waiting = {coming} if showing.done() else {coming, showing}
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                came_back: str | None = None
                if coming.done():
                    came_back = coming.result()
                elif (came_back := showing.result()) is not None and attempt.code(came_back) is None:
                    raise AuthorizationFailed("The address is not that of this login: its state differs.")
            finally:
                coming.cancel()
            if came_back is not None and (code := attempt.code(came_back)) is not None:
                return code
    finally:
        showing.cancel()


async def _shown(show: OpenBrowser, url: str) -> str | None:
    shown = show(url)
    return await shown if isinstance(shown, Awaitable) else shown


def check_browser_login(issuer: Issuer) -> None:
    """Raise `AuthorizationFailed` unless a person can log in at an issuer with a browser and PKCE."""
    shown = shown_url(issuer.issuer)
    if issuer.authorization_endpoint is None:
        raise AuthorizationFailed(f"The authorization server {shown} has no page on which a person logs in.")
    if "S256" not in issuer.code_challenge_methods_supported:
        # https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#authorization-code-protection
        raise AuthorizationFailed(
            f"The authorization server {shown} does not say that it supports PKCE with S256. "
            "Its operator has to enable code_challenge_methods_supported."
        )


def with_offline_access(issuer: Issuer, scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes, and the scope for a refresh token if the issuer has one."""
    if scopes and "offline_access" in issuer.scopes_supported and "offline_access" not in scopes:
        return (*scopes, "offline_access")
    return scopes
