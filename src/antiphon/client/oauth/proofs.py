"""Proofs that the client has the key to which its tokens are bound (DPoP), and the nonces for them.

A token that is stolen is of no use without the key. `joserfc` is imported only by a client that uses proofs.
https://datatracker.ietf.org/doc/html/rfc9449
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from urllib.parse import urlsplit

import msgspec

__all__ = ["ALGORITHM", "Prover"]

ALGORITHM = "ES256"
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")


class Prover:
    """Signs proofs with one key, and keeps the newest nonce of each origin."""

    def __init__(self, key: str | None = None) -> None:
        """Use a key that a login holds, which is the text of a JWK, or make a new one."""
        from joserfc.jwk import ECKey

        self._key = ECKey.generate_key("P-256") if key is None else ECKey.import_key(msgspec.json.decode(key))
        self.key = key or msgspec.json.encode(self._key.as_dict(private=True)).decode()
        """The private key, as the text of a JWK."""
        self._public = self._key.as_dict(private=False)
        self._nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Prover({self.thumbprint!r})"

    @property
    def thumbprint(self) -> str:
        """The hash of the public key (RFC 7638), which names it in tokens."""
        return self._key.thumbprint()

    def proof(self, method: str, url: str, token: str | None = None) -> str:
        """Return the proof for one request, which has this access token if any."""
        from joserfc import jwt

        claims = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(time.time()),
        }
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        nonce = self._nonces.get(_origin(url))
        if nonce is not None:
            claims["nonce"] = nonce
        header = {"alg": ALGORITHM, "typ": "dpop+jwt", "jwk": self._public}
        return jwt.encode(header, claims, self._key, algorithms=[ALGORITHM])

    def take_nonce(self, url: str, nonce: str | None) -> None:
        """Keep the nonce of a response from a URL, if it has one, for the next proofs."""
        if nonce is not None and _NONCE.fullmatch(nonce):
            self._nonces[_origin(url)] = nonce


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
