"""The tokens of one connection: gets them, refreshes them before they expire, and answers refusals.

A refresh runs in a task of its own under the lock of the login: a request that is cancelled does not lose the
new tokens, and a request whose token is still valid does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from antiphon.authorization.urls import shown_url
from antiphon.client.oauth.background_logins import BackgroundLogins
from antiphon.client.oauth.discovery import ProtectedServer, discover
from antiphon.client.oauth.grants import LoginRequest
from antiphon.client.oauth.issuer_requests import IssuerRequests
from antiphon.client.oauth.logins import Login
from antiphon.client.oauth.proofs import ALGORITHM, Prover
from antiphon.client.oauth.token_requests import IssuerRefused, refresh
from antiphon.errors import AuthorizationFailed
from antiphon.transport.client.authorization import AuthorizationNeeded, Authorizing, Refused
from antiphon.transport.client.challenges import bearer_parameters, schemes, split_scopes

if TYPE_CHECKING:
    from antiphon.client.oauth.oauth import OAuth

__all__ = ["OAuthSession"]

logger = logging.getLogger("antiphon.client")

_REFRESH_SECONDS = 60.0
"""How long before its expiry a token is refreshed, at most."""
_REFRESH_SHARE = 0.1
"""The part of its lifetime before its expiry in which a token is refreshed."""
_VALID_SECONDS = 5.0
"""How long a token must be valid to be sent."""
_RETRY_SECONDS = 5.0
"""How long after a failure a token that is still valid is refreshed again."""
_MAX_ATTEMPTS = 3
_MAX_SCOPES = 200
"""How many scopes one login asks for. A server can name new ones again and again."""
_MAX_SILENT_STEP_UPS = 20
"""How often a session without a person asks for further scopes."""
_ENDED = ("invalid_grant", "invalid_client", "unauthorized_client")
"""The errors of an issuer that say that a refresh token is of no use any more."""


class OAuthSession:
    """The authorization of the requests to one server."""

    def __init__(self, url: str, settings: OAuth, requests: IssuerRequests) -> None:
        self._url = url
        self._settings = settings
        self._grant = settings.grant
        self._store = settings.store
        self._requests = requests
        self._problem = requests.problem_of_server()
        """Why no token may be sent to the server, if there is a reason."""
        self.login: Login | None = None
        self._has_looked = False
        self._is_stored = False
        """Whether the store has had this login. If it is gone, the user has logged out."""
        self.renewing: asyncio.Task[bool] | None = None
        self._renew_at = 0.0
        self._authorizing = asyncio.Lock()
        self._prover: Prover | None = None
        self._asked: set[str] = set()
        """The scopes that this session has asked for. The issuer may have granted fewer."""
        self._silent_step_ups = 0
        self._background_logins = BackgroundLogins()

    async def headers(self, method: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; empty without a token."""
        login = await self._valid_login()
        if login is None:
            return {}
        if login.proof_key is None:
            return {"authorization": login.header}
        proof = self._prover_of(login.proof_key).proof(method, self._url, login.access_token)
        return {"authorization": login.header, "dpop": proof}

    def received(self, nonce: str | None) -> None:
        """Keep the nonce of a response for the next request."""
        if self._prover is not None:
            self._prover.take_nonce(self._url, nonce)

    async def _valid_login(self) -> Login | None:
        """Return the login, which is refreshed before its token expires; `None` without one."""
        login = self.login
        if login is None:
            if not self._has_looked:
                self._has_looked = True
                login = self.login = self._stored()
                self._is_stored = login is not None
            if login is None:
                return None
        if login.expires_at is None or not login.expires_within(_early(login)):
            return login
        if login.refresh_token is None:
            return login
        if _is_valid(login):
            if asyncio.get_running_loop().time() >= self._renew_at:
                self._renew(login)
            return login
        await asyncio.shield(self._renew(login))
        return self.login

    async def refused(self, refused: Refused) -> bool:
        """Return whether the request should be sent again, because there is another token now."""
        if self._problem is not None:
            raise AuthorizationFailed(
                f"{shown_url(self._url)} asks for a token, and {self._problem}. No token is sent there. "
                "In a private network that you trust, pass allow_private=True."
            )
        header, attempt, challenge = refused.header, refused.attempt, refused.challenge
        login = self.login
        self.received(refused.nonce)
        if self._prover is not None and bearer_parameters(challenge).get("error") == "use_dpop_nonce":
            return attempt < _MAX_ATTEMPTS
        if login is not None and login.header != header and attempt < _MAX_ATTEMPTS:
            return True
        if refused.status == 403:
            return await self._step_up(refused)
        if attempt == 0:
            stored = self._stored()
            if stored is not None and stored.header != header and _is_valid(stored):
                self.login, self._is_stored = stored, True  # another process has logged in
                self._background_logins.reset()
                return True
            can_refresh = login is not None and login.refresh_token is not None
            if login is not None and can_refresh and await asyncio.shield(self._renew(login)):
                return True
            if self._grant.is_silent:
                await self._authorize(header, challenge)
                return True
        if self._grant.is_silent:
            return False
        raise self._needs("login", refused)

    async def close(self) -> None:
        """Wait for a refresh that has begun: its tokens must be stored."""
        task = self.renewing
        if task is not None and not task.done():
            await asyncio.wait({task})

    async def _step_up(self, refused: Refused) -> bool:
        header, challenge = refused.header, refused.challenge
        parameters = bearer_parameters(challenge)
        wanted = split_scopes(parameters.get("scope"))
        held = set() if self.login is None else set(self.login.scopes)
        is_new = bool(set(wanted) - held - self._asked)
        if parameters.get("error") != "insufficient_scope" or not is_new:
            return False  # asking for the same scopes again would end in the same refusal
        if not self._grant.is_silent:
            raise self._needs("step-up", refused)
        if refused.attempt >= _MAX_ATTEMPTS or self._silent_step_ups >= _MAX_SILENT_STEP_UPS:
            return False
        self._silent_step_ups += 1
        await self._authorize(header, challenge)
        return True

    def _needs(self, kind: Authorizing, refused: Refused) -> AuthorizationNeeded:
        """Return the error for a request that succeeds once a person has logged in."""

        async def authorize(*, in_background: bool = False) -> None:
            background = kind if in_background else None
            if not await self._authorize(refused.header, refused.challenge, background):
                raise refused.error

        return AuthorizationNeeded(kind, refused.error, authorize)

    async def _authorize(
        self, header: str | None, challenge: str, background: Authorizing | None = None
    ) -> bool:
        """Get new tokens in place of those that were refused; raises `AuthorizationFailed`.

        `background` is the kind of a login that the program does not wait for. Returns whether there are new
        tokens: there are none if nobody may be asked for such a login now.
        """
        parameters = bearer_parameters(challenge)
        challenged = split_scopes(parameters.get("scope"))
        needed = set(challenged) if parameters.get("error") == "insufficient_scope" else set()
        async with self._authorizing:
            # Another request, or another process, may have got new tokens meanwhile.
            for found in (self.login, self._stored()):
                is_other = found is not None and found.header != header
                if found is not None and is_other and needed <= set(found.scopes) and _is_valid(found):
                    self._is_stored = self._is_stored or found is not self.login
                    self.login = found
                    return True
            if background is not None and not self._background_logins.begin(background):
                return False
            server = await discover(
                self._requests, self._url, parameters.get("resource_metadata"), self._settings.issuer
            )
            self._check_issuer(server.issuer.issuer)
            held = () if self.login is None else self.login.scopes
            first = (*self._settings.scopes, *challenged) or server.scopes
            wanted = dict.fromkeys(scope for scope in (*held, *first) if scope != "offline_access")
            scopes = tuple(wanted)[:_MAX_SCOPES]
            prover = self._choose_prover(server, schemes(challenge))
            login = await self._grant.obtain(
                LoginRequest(self._url, server, scopes, self._requests, self._store, prover)
            )
            self._asked.update(scopes)
            await self.keep_new(login)
            if background is None:
                self._background_logins.reset()
            else:
                self._background_logins.succeed(background)
            return True

    def _choose_prover(self, server: ProtectedServer, offered: frozenset[str]) -> Prover | None:
        """Return the prover of the key that new tokens are bound to; `None` for bearer tokens.

        Raises `AuthorizationFailed` if the server accepts no bearer tokens, and the issuer has no others.
        """
        if self.login is not None and self.login.proof_key is not None:
            return self._prover_of(self.login.proof_key)
        is_required = server.requires_proofs or offered == {"dpop"}
        if not is_required and "dpop" not in offered:
            return None
        if ALGORITHM in server.issuer.dpop_signing_alg_values_supported:
            self._prover = Prover()
            return self._prover
        if is_required:
            raise AuthorizationFailed(
                f"{shown_url(self._url)} accepts only tokens that are bound to a key (DPoP), and its "
                f"authorization server {shown_url(server.issuer.issuer)} does not bind tokens to keys of "
                f"{ALGORITHM}. Its operator has to enable that."
            )
        return None

    def _prover_of(self, key: str) -> Prover:
        if self._prover is None or self._prover.key != key:
            self._prover = Prover(key)
        return self._prover

    def _check_issuer(self, issuer: str) -> None:
        """Raise `AuthorizationFailed` if a client that the user has registered would go to another issuer.

        https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration
        """
        if self._grant.client_id is None or self._settings.issuer is not None:
            return
        known = self._store.find(self._url, client_id=self._grant.client_id)
        if known is not None and known.issuer != issuer:
            raise AuthorizationFailed(
                f"{shown_url(self._url)} now names the authorization server {shown_url(issuer)}, and the "
                f"client is registered at {shown_url(known.issuer)}. If that is right, pass issuer= and the "
                "new client."
            )

    def _stored(self) -> Login | None:
        is_unused = not self._settings.reuses_login and self.login is None
        if is_unused or self._problem is not None:
            return None
        return self._store.find(self._url, client_id=self._grant.client_id, issuer=self._settings.issuer)

    async def keep_new(self, login: Login) -> None:
        """Keep the login of a person. A refresh of the login before must not be stored after it."""
        async with contextlib.AsyncExitStack() as stack:
            # Without the lock, the person need not log in again. `_keep` logs it if the store cannot be used.
            with contextlib.suppress(OSError, AuthorizationFailed):
                await stack.enter_async_context(self._store.locked(self._url))
            self._keep(login)

    def _keep(self, login: Login) -> None:
        self.login = login
        try:
            self._store.save(login)
            self._is_stored = True
        except OSError as error:
            logger.warning(
                "Cannot store the login at %s: %s. It is lost when the program ends.",
                shown_url(self._url),
                error,
            )

    def _forget(self, login: Login) -> None:
        self.login = None
        try:
            self._store.remove(login)
        except OSError as error:
            logger.warning("Cannot remove the login at %s: %s.", shown_url(self._url), error)

    def _renew(self, login: Login) -> asyncio.Task[bool]:
        """Return the task that replaces a login; its result is whether it could."""
        if self.renewing is None or self.renewing.done():
            # If the issuer is away, a token that is still valid is refreshed a little later.
            self._renew_at = asyncio.get_running_loop().time() + _RETRY_SECONDS
            self.renewing = asyncio.create_task(self._renewed(login))
            self.renewing.add_done_callback(_log_failure)
        return self.renewing

    async def _renewed(self, old: Login) -> bool:
        async with contextlib.AsyncExitStack() as stack:
            with contextlib.suppress(OSError):  # a login that cannot be stored has no other process
                await stack.enter_async_context(self._store.locked(self._url))
            if self.login is not None and self.login.access_token != old.access_token:
                return True
            # Another process may have spent the refresh token, and stored another one.
            stored = self._stored()
            if stored is None and self._is_stored:
                self.login = None  # the user has logged out
                return False
            if stored is not None and stored.access_token != old.access_token:
                if _is_valid(stored):
                    self.login, self._is_stored = stored, True
                    return True
                old = stored
            if old.refresh_token is None:
                return False
            try:
                prover = None if old.proof_key is None else self._prover_of(old.proof_key)
                self._keep(await refresh(self._requests, old, prover))
            except IssuerRefused as error:
                if error.error not in _ENDED:
                    raise  # the issuer has a problem of its own: the refresh token may still be good
                logger.info("The login at %s has ended: %s", shown_url(self._url), error)
                if error.error == "invalid_client":
                    self._forget(old)  # the issuer does not know the client any more: register another
                else:
                    self._keep(msgspec.structs.replace(old, refresh_token=None))
                return False
            return True


def _is_valid(login: Login) -> bool:
    return not login.expires_within(_VALID_SECONDS)


def _early(login: Login) -> float:
    """Return how many seconds before its expiry a token is refreshed."""
    lifetime = (login.expires_at or 0.0) - login.obtained_at
    return max(_VALID_SECONDS, min(_REFRESH_SECONDS, lifetime * _REFRESH_SHARE))


def _log_failure(task: asyncio.Task[bool]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        error = task.exception()
        if isinstance(error, AuthorizationFailed):
            logger.warning(
                "Cannot refresh the login: %s The client tries again when it needs a token.", error
            )
        elif error is not None:
            logger.error("Unexpected error while refreshing the login.", exc_info=error)
