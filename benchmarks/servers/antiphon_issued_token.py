"""Antiphon under measurement, with the access tokens of an issuer, whose keys this process serves too.

The page `/token` hands a token to the benchmark.
"""

import sys
import time
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey
from run_antiphon import run

from antiphon import HttpRequest, IssuedTokens, Issuer, Server

PORT = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 1
ISSUER = f"http://127.0.0.1:{PORT}"
RESOURCE = f"{ISSUER}/mcp"
KEY = ECKey.generate_key("P-256", {"kid": "bench", "use": "sig"})

server = Server(
    "bench",
    authenticate=IssuedTokens(Issuer(ISSUER, jwks_uri=f"{ISSUER}/jwks"), resource=RESOURCE, scopes=["add"]),
)


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.route("/jwks")
async def keys(request: HttpRequest) -> dict[str, Any]:
    """Return the keys of the issuer."""
    return {"keys": [KEY.as_dict(private=False)]}


@server.route("/token")
async def token(request: HttpRequest) -> str:
    """Return a token with about as many claims as issuers put into one."""
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "sub": "6f1c2a0e-6b0a-4f5e-9d0b-6a2f5b1d7c11",
        "aud": RESOURCE,
        "exp": now + 3600,
        "iat": now,
        "jti": "0c9b6f6e-3c52-4a8f-8a53-1f8a3e4b7d20",
        "client_id": "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        "scope": "openid profile email add",
        "roles": ["reader", "writer", "auditor"],
        "tenant": "acme",
    }
    return jwt.encode({"alg": "ES256", "kid": "bench", "typ": "at+jwt"}, claims, KEY)


if __name__ == "__main__":
    run(__file__)
