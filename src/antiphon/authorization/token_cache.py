"""Caches the principals of verified tokens, by a hash of the token. Must not keep a token."""

from __future__ import annotations

import hashlib
import time

from antiphon.model.identity import Principal

__all__ = ["TokenCache"]


class TokenCache:
    """Caches the principals of at most `max_tokens` tokens, for `seconds` and never beyond their expiry."""

    def __init__(self, *, max_tokens: int, seconds: float) -> None:
        self._max_tokens = max_tokens
        self._seconds = seconds
        self._principals: dict[bytes, tuple[Principal, float]] = {}

    def __len__(self) -> int:
        return len(self._principals)

    def find(self, credentials: str) -> Principal | None:
        """Return the principal of an `Authorization` header, or `None` if the token must be verified."""
        found = self._principals.get(hashlib.sha256(credentials.encode()).digest())
        return found[0] if found is not None and time.time() < found[1] else None

    def add(self, credentials: str, principal: Principal, expires: float) -> None:
        """Cache the principal of an `Authorization` header. Evicts the oldest entry if the cache is full."""
        until = min(expires, time.time() + self._seconds)
        key = hashlib.sha256(credentials.encode()).digest()
        self._principals.pop(key, None)
        while len(self._principals) >= self._max_tokens:
            del self._principals[next(iter(self._principals))]
        self._principals[key] = (principal, until)
