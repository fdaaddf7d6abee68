"""A server behind a real authorization server: JWTs, opaque tokens, and the official client."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Context, IssuedTokens, Issuer, Server
from tests.support.authorization_server import AuthorizationServer
from tests.support.serving import running
from tests.support.speakers import Modern

RESOURCE = "https://notes.example.com/mcp"
OPAQUE = "https://notes.example.com/opaque"


def notes(tokens: IssuedTokens) -> Server:
    server = Server("notes", authenticate=tokens)

    @server.tool
    async def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)}"

    @server.tool(scopes=["notes:write"])
    async def save() -> str:
        return "saved"

    return server


def bearer(port: int, token: str) -> Modern:
    return Modern(port, headers={"authorization": f"Bearer {token}"})


def verifier(oidc: AuthorizationServer, resource: str, **options: Any) -> IssuedTokens:
    issuer = Issuer(oidc.url, client_id="notes", client_secret="notes-secret")
    return IssuedTokens(issuer, resource=resource, scopes=["notes:read"], **options)


@pytest.mark.parametrize("resource", [RESOURCE, OPAQUE], ids=["jwt", "opaque"])
async def test_tokens_of_users_and_of_clients_are_accepted(oidc: AuthorizationServer, resource: str) -> None:
    async with running(notes(verifier(oidc, resource))) as where:
        of_robot = await oidc.client_token(resource)
        of_ada = (await oidc.login("ada", resource, "notes:read notes:write"))["access_token"]
        assert [token.count(".") == 2 for token in (of_robot, of_ada)] == [resource == RESOURCE] * 2
        said = await bearer(where.port, of_robot).call("whoami")
        assert said.text == f"client:{oidc.url}#robot ['notes:read']"
        said = await bearer(where.port, of_ada).call("whoami")
        assert said.text == f"{oidc.url}#ada ['notes:read', 'notes:write']"
        assert (await bearer(where.port, of_ada).call("save")).text == "saved"
        refused = await bearer(where.port, of_robot).call("save")
        assert refused.status == 403
        assert 'scope="notes:read notes:write"' in refused.headers["www-authenticate"]


@pytest.mark.parametrize("resource", [RESOURCE, OPAQUE], ids=["jwt", "opaque"])
async def test_tokens_for_another_resource_are_refused(oidc: AuthorizationServer, resource: str) -> None:
    async with running(notes(verifier(oidc, resource))) as where:
        for other in ("https://other.example.com/mcp", "https://other.example.com/opaque"):
            refused = await bearer(where.port, await oidc.client_token(other)).call("whoami")
            assert refused.status == 401
            assert 'error="invalid_token"' in refused.headers["www-authenticate"]


async def test_a_revoked_opaque_token_is_refused_after_the_cache(oidc: AuthorizationServer) -> None:
    async with running(notes(verifier(oidc, OPAQUE, cache_seconds=0))) as where:
        token = await oidc.client_token(OPAQUE)
        assert (await bearer(where.port, token).call("whoami")).status == 200
        await oidc.revoke(token)
        assert (await bearer(where.port, token).call("whoami")).status == 401


async def test_a_refreshed_token_belongs_to_the_same_principal(oidc: AuthorizationServer) -> None:
    async with running(notes(verifier(oidc, RESOURCE))) as where:
        tokens = await oidc.login("grace", RESOURCE)
        refreshed = await oidc.refresh(tokens["refresh_token"], RESOURCE)
        assert refreshed["refresh_token"] != tokens["refresh_token"]
        said = [
            (await bearer(where.port, each["access_token"]).call("whoami")).text
            for each in (tokens, refreshed)
        ]
        assert said == [f"{oidc.url}#grace ['notes:read']"] * 2


async def test_an_id_token_is_not_an_access_token(oidc: AuthorizationServer) -> None:
    async with running(notes(verifier(oidc, RESOURCE))) as where:
        tokens = await oidc.login("ada", RESOURCE, "openid notes:read")
        assert (await bearer(where.port, tokens["access_token"]).call("whoami")).status == 200
        assert (await bearer(where.port, tokens["id_token"]).call("whoami")).status == 401
