"""Tokens that are bound to a key (DPoP): each request proves that the client has it."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey

from antiphon import AuthorizationFailed, Client, FileLogins, MemoryLogins, OAuth, Unauthorized
from tests.oauth.hostile import Hostile
from tests.oauth.notes import Robot, no_browser
from tests.support.authorization_server import AuthorizationServer
from tests.support.web import answering


class BoundServer:
    """An MCP server that takes bound tokens only, and wants another nonce in every proof."""

    def __init__(self, url: str, issuer: str) -> None:
        self.url = url
        self.metadata = {
            "resource": url,
            "authorization_servers": [issuer],
            "scopes_supported": ["notes:read"],
            "dpop_bound_access_tokens_required": True,
        }
        self.statuses: list[int] = []
        self._nonce = "nonce-0"
        self._used: set[str] = set()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        if "oauth-protected-resource" in request.path:
            return web.json_response(self.metadata)
        refusal = self._refusal(request)
        self.statuses.append(200 if refusal is None else 401)
        self._nonce = f"nonce-{len(self.statuses)}"
        headers = {"DPoP-Nonce": self._nonce}
        if refusal is not None:
            headers["WWW-Authenticate"] = f'Bearer error="invalid_token", DPoP error="{refusal}"'
            if refusal == "use_dpop_nonce":
                headers["WWW-Authenticate"] = 'DPoP error="use_dpop_nonce"'
            return web.json_response({}, status=401, headers=headers)
        asked = await request.json()
        result: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "proven"}]}
        if asked["method"] == "server/discover":
            result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result}, headers=headers)

    def _refusal(self, request: web.Request) -> str | None:
        """Return the error of a request; `None` if it is proven."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "DPoP":
            return "invalid_token"
        (proof,) = request.headers.getall("DPoP")
        key = ECKey.import_key(decoded(proof, 0)["jwk"])
        assert not key.is_private
        read = jwt.decode(proof, key, algorithms=["ES256"])
        assert read.header["typ"] == "dpop+jwt"
        claims = read.claims
        digest = hashlib.sha256(token.encode()).digest()
        assert claims["ath"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert (claims["htm"], claims["htu"]) == (request.method, self.url)
        assert claims["jti"] not in self._used
        self._used.add(claims["jti"])
        assert decoded(token, 1)["cnf"]["jkt"] == key.thumbprint()
        return None if claims.get("nonce") == self._nonce else "use_dpop_nonce"


def decoded(token: str, part: int) -> dict[str, Any]:
    text = token.split(".")[part]
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def serving_bound(issuer: str) -> AbstractAsyncContextManager[BoundServer]:
    return answering(lambda port: BoundServer(f"http://127.0.0.1:{port}/mcp", issuer))


async def test_a_login_is_bound_to_a_key_that_outlives_the_process(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    logins, robot = FileLogins(tmp_path), Robot()
    async with serving_bound(oidc.url) as server:
        auth = OAuth(store=logins, open_browser=robot)
        async with Client(server.url, auth=auth) as client:
            for _ in range(3):
                assert (await client.call("add")).text == "proven"
        assert len(robot.visits) == 1
        assert "dpop_jkt=" in robot.visits[0]
        # One request without a token, one without a nonce; each response has the nonce for the next request.
        assert server.statuses == [401, 401, 200, 200, 200, 200]
        (login,) = logins.all()
        assert login.header.startswith("DPoP ")
        assert login.proof_key is not None
        assert json.loads(login.proof_key)["d"] not in f"{login!r} {auth!r}"
        # The issuer refreshes a bound token only for the same key.
        logins.save(msgspec.structs.replace(login, expires_at=time.time() - 10))
        async with Client(server.url, auth=OAuth(store=logins, open_browser=no_browser)) as client:
            assert (await client.call("add")).text == "proven"
        (after,) = logins.all()
        assert after.access_token != login.access_token
        assert after.proof_key == login.proof_key


async def test_a_program_without_a_person_has_bound_tokens_too(oidc: AuthorizationServer) -> None:
    async with serving_bound(oidc.url) as server:
        auth = OAuth.service("robot", "robot-secret", issuer=oidc.url)
        async with Client(server.url, auth=auth) as client:
            assert (await client.call("add")).text == "proven"


async def test_a_server_that_requires_bound_tokens_of_an_issuer_without_them_is_an_error(
    hostile: Hostile,
) -> None:
    hostile.challenge = 'DPoP algs="ES256"'
    with pytest.raises(AuthorizationFailed, match=r"bound to a key \(DPoP\)"):
        await hostile.connect()
    hostile.challenge = 'Bearer, DPoP algs="ES256"'
    with pytest.raises(Unauthorized):  # a bearer token was issued, and refused
        await hostile.connect()
    hostile.resource["dpop_bound_access_tokens_required"] = True
    with pytest.raises(AuthorizationFailed, match=r"bound to a key \(DPoP\)"):
        await hostile.connect()
    assert len(hostile.pages) == 1


async def test_an_issuer_that_ignores_proofs_issues_bearer_tokens(hostile: Hostile) -> None:
    hostile.challenge = "DPoP"
    hostile.issuer["dpop_signing_alg_values_supported"] = ["ES256"]
    store = MemoryLogins()
    with pytest.raises(Unauthorized):
        await hostile.connect(store=store)
    (login,) = store.all()
    assert (login.header, login.proof_key) == ("Bearer t", None)
