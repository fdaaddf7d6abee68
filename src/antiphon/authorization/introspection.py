"""Introspects tokens that are not JWTs: asks their issuer what they are.

https://datatracker.ietf.org/doc/html/rfc7662
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from antiphon import wall_clock
from antiphon.authorization.claims import InvalidToken, check_claims
from antiphon.authorization.issuer import Issuer
from antiphon.authorization.issuer_requests import IssuerUnavailable, discover, fetch_document
from antiphon.authorization.token_cache import token_digest

__all__ = ["Introspection"]

logger = logging.getLogger("antiphon")

MAX_REQUESTS = 64
"""How many tokens are introspected at once. Callers can invent any number of tokens."""
MAX_WAITING = 1024
"""How many further tokens wait for their turn. More are refused."""
MAX_INACTIVE = 4096
"""How many hashes of inactive tokens are remembered."""

Verified = tuple[dict[str, Any], float]


class Introspection:
    """Introspects tokens at one issuer. Tokens are sent to no other."""

    def __init__(
        self,
        issuer: Issuer,
        *,
        audiences: Collection[str],
        leeway: float,
        cooldown: float,
        timeout: float,
    ) -> None:
        assert issuer.client_id is not None
        assert issuer.client_secret is not None
        self._issuer = issuer
        # RFC 6749, section 2.3.1: both are form-encoded before Basic encodes them.
        self._credentials = (quote(issuer.client_id, safe=""), quote(issuer.client_secret, safe=""))
        self._audiences = audiences
        self._leeway = leeway
        self._cooldown = cooldown
        self._timeout = timeout
        self._endpoint = issuer.introspection_endpoint
        self._requests: dict[bytes, asyncio.Task[dict[str, Any]]] = {}
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._inactive: dict[bytes, float] = {}
        self._is_away = False

    async def verify(self, token: str) -> Verified:
        """Return the claims of a token, and when it expires; raises `InvalidToken`, `IssuerUnavailable`."""
        key = token_digest(token)
        if time.monotonic() < self._inactive.get(key, 0.0):
            raise InvalidToken("The token is not active.")
        try:
            claims = await self._introspect_once(key, token)
        except IssuerUnavailable as error:
            if not self._is_away:
                self._is_away = True
                logger.warning("Cannot introspect tokens at the issuer %s: %s.", self._issuer.url, error)
            raise
        self._is_away = False
        if claims.get("active") is not True:
            self._remember_inactive(key)
            raise InvalidToken("The token is not active.")
        # The issuer itself has answered, so its answer need not repeat its name.
        claims = {"iss": self._issuer.url, **claims}
        expires = check_claims(
            claims,
            issuer=self._issuer.url,
            audiences=self._audiences,
            leeway=self._leeway,
            now=wall_clock.now(),
        )
        return claims, expires

    async def _introspect_once(self, key: bytes, token: str) -> dict[str, Any]:
        """Introspect a token. Calls with the same token at the same time share a request."""
        request = self._requests.get(key)
        if request is None or request.get_loop() is not asyncio.get_running_loop():
            if len(self._requests) >= MAX_REQUESTS + MAX_WAITING:
                raise IssuerUnavailable("too many tokens are being introspected")
            request = self._requests[key] = asyncio.create_task(self._introspect_in_turn(token))
            request.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(request)

    async def _introspect_in_turn(self, token: str) -> dict[str, Any]:
        """Introspect a token after those that came before, so that invented tokens only delay the others."""
        loop = asyncio.get_running_loop()
        turns = self._turns.get(loop)
        if turns is None:
            turns = self._turns[loop] = asyncio.Semaphore(MAX_REQUESTS)
        try:
            async with asyncio.timeout(self._timeout):
                await turns.acquire()
        except TimeoutError:
            raise IssuerUnavailable("too many tokens are being introspected") from None
        try:
            return await self._introspect(token)
        finally:
            turns.release()

    async def _introspect(self, token: str) -> dict[str, Any]:
        if self._endpoint is None:
            metadata = await discover(self._issuer.url, timeout=self._timeout)
            endpoint = metadata.get("introspection_endpoint")
            if not isinstance(endpoint, str):
                raise IssuerUnavailable(f"the metadata of {self._issuer.url} has no introspection_endpoint")
            self._endpoint = endpoint
        form = {"token": token}
        return await fetch_document(
            self._endpoint, timeout=self._timeout, form=form, credentials=self._credentials
        )

    def _forget(self, key: bytes, done: asyncio.Task[dict[str, Any]]) -> None:
        if self._requests.get(key) is done:
            del self._requests[key]
        if not done.cancelled():
            done.exception()  # the callers have it, unless all of them have disconnected

    def _remember_inactive(self, key: bytes) -> None:
        if len(self._inactive) >= MAX_INACTIVE:
            del self._inactive[next(iter(self._inactive))]
        self._inactive[key] = time.monotonic() + self._cooldown
