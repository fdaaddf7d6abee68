"""Sealed tokens: data that a client holds for the server and can neither read nor change.

Tokens are encrypted with AES-256-GCM. The first key seals; every key opens, so that keys can be rotated. The
binding of a token is not part of the token: the code that opens it has to pass the same binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

from antiphon.errors import SealError

__all__ = ["Seal"]

_NONCE_BYTES = 12
_EXPIRY_BYTES = 8
_MIN_SECRET_BYTES = 16


class Seal:
    """Seals and opens tokens. Without secrets it uses a random key, which only this process has."""

    def __init__(self, secrets: Sequence[str | bytes] = ()) -> None:
        raw = [secret.encode() if isinstance(secret, str) else secret for secret in secrets]
        for secret in raw:
            if len(secret) < _MIN_SECRET_BYTES:
                raise ValueError(
                    f"A secret needs at least {_MIN_SECRET_BYTES} bytes, and one has {len(secret)}. Secrets "
                    "come from Server(secrets=…) or ANTIPHON_SECRETS; create one with `openssl rand -hex 32`."
                )
        self.shared = bool(raw)
        """Whether other processes may have the same keys."""
        self._keys = [
            hashlib.sha256(b"antiphon seal\0" + secret).digest() for secret in raw or [os.urandom(32)]
        ]
        self._ciphers: list[Any] | None = None

    def seal(self, data: bytes, *, bound_to: bytes, lifetime: float) -> str:
        """Return a token that opens for `lifetime` seconds, with the same `bound_to`."""
        nonce = os.urandom(_NONCE_BYTES)
        expiry = int((time.time() + lifetime) * 1000).to_bytes(_EXPIRY_BYTES, "big")
        sealed = self._ring[0].encrypt(nonce, data, expiry + bound_to)
        return base64.urlsafe_b64encode(nonce + expiry + sealed).rstrip(b"=").decode()

    def open(self, token: str, *, bound_to: bytes | Sequence[bytes]) -> bytes:
        """Return the data of a token that is bound to one of these.

        Raises `SealError`, whose reason is for the log only.
        """
        raw = _decode(token)
        nonce, expiry, sealed = (
            raw[:_NONCE_BYTES],
            raw[_NONCE_BYTES : _NONCE_BYTES + _EXPIRY_BYTES],
            raw[_NONCE_BYTES + _EXPIRY_BYTES :],
        )
        bindings = (bound_to,) if isinstance(bound_to, bytes) else bound_to
        for cipher, binding in itertools.product(self._ring, bindings):
            try:
                data: bytes = cipher.decrypt(nonce, sealed, expiry + binding)
            except Exception:  # nosec B112 # cryptography raises InvalidTag, or ValueError for impossible lengths
                continue
            if int.from_bytes(expiry, "big") < time.time() * 1000:
                raise SealError("The token has expired.")
            return data
        raise SealError(
            "The token was altered, is bound to another call, or was sealed with an unknown key. "
            "Check that all processes have the same ANTIPHON_SECRETS."
        )

    @property
    def _ring(self) -> list[Any]:
        if self._ciphers is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = [AESGCM(key) for key in self._keys]
        return self._ciphers


def _decode(token: str) -> bytes:
    """Return the bytes of a token; raises `SealError` for any other spelling than the one of `seal`."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise SealError("The token is not base64.") from None
    if (
        len(raw) <= _NONCE_BYTES + _EXPIRY_BYTES
        or base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != token
    ):
        raise SealError("The token is too short, or is not in canonical base64.")
    return raw
