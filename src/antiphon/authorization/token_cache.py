"""Caches the principals of verified tokens, by a hash of the token. Must not keep a token."""

from __future__ import annotations

from hashlib import blake2b

from antiphon import wall_clock
from antiphon.model.identity import Principal

__all__ = ["TokenCache", "token_digest"]


MAX_CHARACTERS = 8 * 1024 * 1024
"""How long the tokens may be in all whose principals are cached: their claims take memory."""


class TokenCache:
    """Caches the principals of at most `max_tokens` tokens, for `seconds` and never beyond their expiry."""

    def __init__(self, *, max_tokens: int, seconds: float) -> None:
        self._max_tokens = max_tokens
        self._seconds = seconds
        self._principals: dict[bytes, tuple[Principal, float, int]] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._principals)

    def find(self, credentials: str) -> Principal | None:
        """Return the principal of an `Authorization` header, or `None` if the token must be verified."""
        found = self._principals.get(token_digest(credentials))
        return found[0] if found is not None and wall_clock.now() < found[1] else None

    def add(self, credentials: str, principal: Principal, expires: float) -> None:
        """Cache the principal of an `Authorization` header; evict the oldest entries if the cache is full."""
        until, size = min(expires, wall_clock.now() + self._seconds), len(credentials)
        key = token_digest(credentials)
        if key in self._principals:
            self._evict(key)
        while self._principals and (
            len(self._principals) >= self._max_tokens or self._characters + size > MAX_CHARACTERS
        ):
            self._evict(next(iter(self._principals)))
        self._principals[key] = (principal, until, size)
        self._characters += size

    def _evict(self, key: bytes) -> None:
        self._characters -= self._principals.pop(key)[2]


def token_digest(credentials: str) -> bytes:
    """Return a hash of a token, or of the `Authorization` header that carries it.

    BLAKE2 is built into Python. SHA-256 comes from OpenSSL, and costs more than twice as much in a server.
    """
    return blake2b(credentials.encode(), digest_size=32).digest()
