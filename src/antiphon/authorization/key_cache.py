"""Caches the public keys of an issuer.

Owns when keys are fetched: at the first token, in the background once they are old, before a token is
verified once they are older, and at most once a cooldown for a key id that is not there. It must not know
claims.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key

from antiphon.authorization.claims import InvalidToken
from antiphon.authorization.issuer import Issuer
from antiphon.authorization.issuer_requests import IssuerUnavailable, discover, fetch_document

__all__ = ["KeyCache"]

logger = logging.getLogger("antiphon")

_MAX_KEYS = 100
"""How many keys of one issuer are cached. The others are ignored."""
REFRESH_AFTER_SECONDS = 600.0
"""How old keys are when they are fetched again in the background."""
MAX_UNCHECKED_SECONDS = 1200.0
"""How old keys are when a token waits until they are fetched again. The issuer may have withdrawn some."""
MAX_AGE_SECONDS = 24 * 3600.0
"""How old keys may be while the issuer is unavailable."""
FIRST_RETRY_SECONDS = 2.0
"""The cooldown while there are no keys, so that a server which starts before its issuer waits for it."""
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of the key that an algorithm needs, by the first letters of the algorithm."""


class KeyCache:
    """The keys of one issuer, by key id."""

    def __init__(self, issuer: Issuer, *, cooldown: float, timeout: float) -> None:
        self._issuer = issuer
        self._cooldown = cooldown
        self._timeout = timeout
        self._jwks_uri = issuer.jwks_uri
        self._keys: dict[str | None, list[Key]] = {}
        self._fetched: float | None = None
        self._attempted = float("-inf")
        self._fetch: asyncio.Task[None] | None = None
        self._is_away = False

    async def find(self, key_id: str | None, algorithm: str) -> Key:
        """Return the key with which a token was signed.

        Raises `InvalidToken` if the issuer has no such key, and `IssuerUnavailable` if its keys are unknown.
        """
        age = self._age
        if age > MAX_AGE_SECONDS:
            await self._refresh()
            if self._age > MAX_AGE_SECONDS:
                raise IssuerUnavailable(f"the keys of {self._issuer.url} are not available")
        elif age > MAX_UNCHECKED_SECONDS and not self._is_away:
            await self._refresh()
        elif age > REFRESH_AFTER_SECONDS:
            self._start_refresh()  # the keys at hand are used meanwhile
        key = self._find(key_id, algorithm)
        if key is None:
            await self._refresh()
            key = self._find(key_id, algorithm)
        if key is None:
            raise InvalidToken("The token is signed with a key that its issuer does not have.")
        return key

    @property
    def _age(self) -> float:
        return float("inf") if self._fetched is None else time.monotonic() - self._fetched

    def _find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Return the key of this id. A token without a key id needs an issuer with one fitting key."""
        keys = self._keys.get(key_id, ())
        if key_id is None:
            keys = [key for group in self._keys.values() for key in group]
        fitting = [key for key in keys if _fits(key, algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    async def _refresh(self) -> None:
        """Fetch the keys, unless that was tried within the cooldown. A failure is logged, and not raised."""
        fetch = self._start_refresh()
        if fetch is not None:
            # A caller that disconnects must not stop the fetch for the others.
            await asyncio.shield(fetch)

    def _start_refresh(self) -> asyncio.Task[None] | None:
        """Return the fetch under way, or start one; `None` within the cooldown."""
        running = self._fetch
        if running is not None and not running.done() and running.get_loop() is asyncio.get_running_loop():
            return running
        now = time.monotonic()
        has_keys = self._age <= MAX_AGE_SECONDS
        cooldown = self._cooldown if has_keys else min(self._cooldown, FIRST_RETRY_SECONDS)
        if now - self._attempted < cooldown:
            return None
        self._attempted = now
        self._fetch = asyncio.create_task(self._fetch_keys())
        return self._fetch

    async def _fetch_keys(self) -> None:
        try:
            if self._jwks_uri is None:
                self._jwks_uri = await self._discover_keys()
            self._keys = _read_keys(await fetch_document(self._jwks_uri, timeout=self._timeout))
            self._fetched = time.monotonic()
            if self._is_away:
                self._is_away = False
                logger.info("The issuer %s responds again.", self._issuer.url)
        except IssuerUnavailable as error:
            self._jwks_uri = self._issuer.jwks_uri  # it may have moved
            if not self._is_away:
                self._is_away = True
                logger.warning(
                    "Cannot fetch the keys of the issuer %s: %s. "
                    "The keys at hand are used for up to %g hours. Trying again.",
                    self._issuer.url,
                    error,
                    MAX_AGE_SECONDS / 3600,
                )

    async def _discover_keys(self) -> str:
        uri = (await discover(self._issuer.url, timeout=self._timeout)).get("jwks_uri")
        if not isinstance(uri, str):
            raise IssuerUnavailable(f"the metadata of {self._issuer.url} has no jwks_uri")
        return uri


def _read_keys(document: Mapping[str, Any]) -> dict[str | None, list[Key]]:
    """Return the signing keys of a JWKS document, by key id; raises `IssuerUnavailable`."""
    given = document.get("keys")
    if not isinstance(given, list):
        raise IssuerUnavailable("the document of keys has no list of keys")
    found: dict[str | None, list[Key]] = {}
    for entry in given[:_MAX_KEYS]:
        if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # joserfc warns of keys that are too weak
                key = JWKRegistry.import_key(entry)
        except (JoseError, ValueError, TypeError, KeyError, Warning):
            continue  # one key that cannot be read must not make the others unusable
        key_id = entry.get("kid")
        found.setdefault(key_id if isinstance(key_id, str) else None, []).append(key)
    return found


def _fits(key: Key, algorithm: str) -> bool:
    """Return whether a key may verify signatures of an algorithm."""
    parameters = key.as_dict(private=False)
    operations = parameters.get("key_ops")
    return (
        parameters.get("kty") == _KEY_TYPES[algorithm[:2]]
        and parameters.get("use", "sig") == "sig"
        and parameters.get("alg", algorithm) == algorithm
        and (not isinstance(operations, list) or "verify" in operations)
    )
