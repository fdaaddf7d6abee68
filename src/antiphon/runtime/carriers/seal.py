"""Sealed tokens: data that a client holds for the server and can neither read nor change.

Tokens are encrypted with AES-256-GCM. Each process derives its own keys: HKDF-SHA256 makes one from a
secret, the use of the token, and a random salt, which is part of the token. A key seals 2**30 tokens at most;
then the process takes a new salt. So the chance that two tokens of one key share a nonce of 96 random bits
stays below 2**-36. The bound of NIST SP 800-38D is 2**32 tokens, for a chance of 2**-32.

The first secret seals; every secret opens, so that secrets can be changed. A token opens for the lifetime
with which it was sealed. The binding of a token is not part of the token: the code that opens it has to pass
the same binding.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon import wall_clock
from antiphon.errors import SealError

__all__ = ["Seal", "Use"]

Use: TypeAlias = Literal["state", "held", "session", "question", "console"]
"""The uses of tokens. Keys of different uses differ, so that a token never opens as one of another use."""

_FORMAT = b"\2"
"""The first byte of a token. Tokens of the first format begin with a random byte instead."""
_SALT_BYTES = 16
_NONCE_BYTES = 12
_EXPIRY_BYTES = 8
_MIN_SECRET_BYTES = 16
_MIN_DISTINCT_BYTES = 8
"""Distinct bytes in a secret. 16 random bytes almost always have 14 or more."""
MAX_TOKENS_PER_KEY = 2**30
"""Tokens that one key seals. After these, the process derives another key."""
_MAX_CIPHERS = 256
"""Derived keys that are kept to open tokens: those of the processes whose tokens were opened last."""
_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_FROM_URL_SAFE = bytes(byte if byte in _ALPHABET else ord("!") for byte in range(256)).translate(
    bytes.maketrans(b"-_", b"+/")
)
"""Every other character becomes one that base64 does not have."""
_base64 = msgspec.json.Decoder(bytes)
_LAST_CHARACTERS = tuple(frozenset(_ALPHABET.decode()[::step]) for step in (1, 16, 4))
"""The last characters of tokens, by the bytes in the last group: bits that belong to no byte are zero."""
_SHARED_ADVICE = "Check that all processes have the same ANTIPHON_SECRETS."
_RANDOM_ADVICE = (
    "No secret is configured, so this process opens no token of another process or of the time before a "
    "restart: set ANTIPHON_SECRETS or Server(secrets=…)."
)
_ADVICE = "Secrets come from Server(secrets=…) or ANTIPHON_SECRETS; create one with `openssl rand -hex 32`."


class Seal:
    """Seals and opens tokens. Without secrets it uses a random one, which only this process has."""

    def __init__(self, secrets: Sequence[str | bytes] = ()) -> None:
        raw = [secret.encode() if isinstance(secret, str) else secret for secret in secrets]
        for secret in raw:
            _check_secret(secret)
        self.shared = bool(raw)
        """Whether other processes may have the same secrets."""
        self._secrets = raw or [os.urandom(32)]
        self._sealing: dict[Use, _SealingKey] = {}
        self.ciphers: dict[tuple[int, Use, bytes], Any] = {}
        self._first_ciphers: list[Any] | None = None

    def seal(self, data: bytes, *, use: Use, bound_to: bytes, lifetime: float) -> str:
        """Return a token that opens for `lifetime` seconds, for the same use and with the same `bound_to`."""
        key = self._sealing.get(use)
        if key is None or key.tokens >= MAX_TOKENS_PER_KEY or key.forks != _forks:
            salt = os.urandom(_SALT_BYTES)
            key = self._sealing[use] = _SealingKey(salt, _derive(self._secrets[0], use, salt))
        key.tokens += 1
        nonce = os.urandom(_NONCE_BYTES)
        expiry = int((wall_clock.now() + lifetime) * 1000).to_bytes(_EXPIRY_BYTES, "big")
        sealed = key.cipher.encrypt(nonce, data, expiry + bound_to)
        return encode(_FORMAT + key.salt + nonce + expiry + sealed)

    def open(self, token: str, *, use: Use, bound_to: bytes | Sequence[bytes]) -> bytes:
        """Return the data of a token of this use that is bound to one of these.

        Raises `SealError`, whose reason is for the log only.
        """
        raw = decode(token)
        bindings = (bound_to,) if isinstance(bound_to, bytes) else bound_to
        data = self._open(raw, use, bindings) if raw.startswith(_FORMAT) else None
        if data is None:
            data = self._open_first_format(raw, bindings)
        if data is None:
            advice = _SHARED_ADVICE if self.shared else _RANDOM_ADVICE
            raise SealError(
                "The token was altered, is bound to another call, or was sealed with an unknown key. "
                + advice
            )
        return data

    def _open(self, raw: bytes, use: Use, bindings: Sequence[bytes]) -> bytes | None:
        """Return the data of a token, or `None` if no secret opens it; raises `SealError` once it expired."""
        start = len(_FORMAT) + _SALT_BYTES
        salt, rest = raw[len(_FORMAT) : start], raw[start:]
        if len(rest) <= _NONCE_BYTES + _EXPIRY_BYTES:
            return None
        for number, secret in enumerate(self._secrets):
            place = (number, use, salt)
            known = self.ciphers.get(place)
            cipher = known or _derive(secret, use, salt)
            data = _decrypt(cipher, rest, bindings)
            if data is None:
                continue
            # Only a key that opened a token is kept, so that invented salts do not evict those in use.
            if known is None or len(self.ciphers) > 1:
                self._keep_cipher(place, cipher)
            _check_expiry(rest)
            return data
        return None

    def _keep_cipher(self, place: tuple[int, Use, bytes], cipher: Any) -> None:
        """Keep a cipher behind the others, in place of the one that was not used for the longest time."""
        self.ciphers.pop(place, None)
        while len(self.ciphers) >= _MAX_CIPHERS:
            del self.ciphers[next(iter(self.ciphers))]
        self.ciphers[place] = cipher

    def _open_first_format(self, raw: bytes, bindings: Sequence[bytes]) -> bytes | None:
        """Return the data of a token of an earlier version, whose key was a hash of the secret."""
        for cipher in self._ciphers_of_first_format:
            data = _decrypt(cipher, raw, bindings)
            if data is not None:
                _check_expiry(raw)
                return data
        return None

    @property
    def _ciphers_of_first_format(self) -> Iterator[Any]:
        if self._first_ciphers is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._first_ciphers = [
                AESGCM(hashlib.sha256(b"antiphon seal\0" + secret).digest()) for secret in self._secrets
            ]
        return iter(self._first_ciphers)


_forks = 0
"""How many forks lie between this process and the one that imported this module."""


def _note_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class _SealingKey:
    """A key that this process seals with."""

    __slots__ = ("cipher", "forks", "salt", "tokens")

    def __init__(self, salt: bytes, cipher: Any) -> None:
        self.salt = salt
        self.cipher = cipher
        self.tokens = 0
        self.forks = _forks  # a forked process would count the tokens of its own only


def _check_secret(secret: bytes) -> None:
    """Raise `ValueError` if a secret is easy to guess."""
    if len(secret) < _MIN_SECRET_BYTES:
        raise ValueError(
            f"A secret needs at least {_MIN_SECRET_BYTES} bytes, and one has {len(secret)}. {_ADVICE}"
        )
    distinct = len(set(secret))
    if distinct < _MIN_DISTINCT_BYTES:
        raise ValueError(
            f"A secret is too easy to guess: it repeats only {distinct} different bytes, and needs at least "
            f"{_MIN_DISTINCT_BYTES}. {_ADVICE}"
        )


def _derive(secret: bytes, use: Use, salt: bytes) -> Any:
    """Return the cipher of a derived key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"antiphon seal 2\0" + use.encode()
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret))


def _decrypt(cipher: Any, raw: bytes, bindings: Sequence[bytes]) -> bytes | None:
    """Return the data after a nonce and a time of expiry; `None` if the key or the binding is another."""
    start = _NONCE_BYTES + _EXPIRY_BYTES
    nonce, expiry, sealed = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:start], raw[start:]
    for binding in bindings:
        try:
            data: bytes = cipher.decrypt(nonce, sealed, expiry + binding)
        except Exception:  # nosec B112 # cryptography raises InvalidTag, or ValueError for impossible lengths
            continue
        return data
    return None


def _check_expiry(raw: bytes) -> None:
    expiry = raw[_NONCE_BYTES : _NONCE_BYTES + _EXPIRY_BYTES]
    if int.from_bytes(expiry, "big") < wall_clock.now() * 1000:
        raise SealError("The token has expired.")


def encode(raw: bytes) -> str:
    """Return a token as URL-safe base64 without padding."""
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URL_SAFE, b"=").decode()


def decode(token: str) -> bytes:
    """Return the bytes of a token; raises `SealError` for any other spelling than the one of `seal`."""
    try:
        # As a JSON string, because msgspec decodes base64 more quickly than binascii does.
        padded = b'"%b%b"' % (token.encode().translate(_FROM_URL_SAFE), b"=" * (-len(token) % 4))
        raw = _base64.decode(padded)
    except (UnicodeEncodeError, msgspec.DecodeError):
        raise SealError("The token is not base64.") from None
    # Only the bits behind the last byte can be spelled in several ways.
    if len(raw) <= _NONCE_BYTES + _EXPIRY_BYTES or token[-1] not in _LAST_CHARACTERS[len(raw) % 3]:
        raise SealError("The token is too short, or is not in canonical base64.")
    return raw
