"""Our client logs in at servers of other libraries, behind a real authorization server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from antiphon import Client, MemoryLogins, OAuth
from tests.oauth.notes import Robot
from tests.support.authorization_server import AuthorizationServer
from tests.support.process import free_port
from tests.support.serving import serving_asgi


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def verifier(oidc: AuthorizationServer, url: str) -> JWTVerifier:
    return JWTVerifier(
        jwks_uri=f"{oidc.url}/jwks", issuer=oidc.url, audience=url, required_scopes=["notes:read"]
    )


def mcp_app(oidc: AuthorizationServer, url: str) -> Any:
    """Return a server of the official SDK, which has no verifier of its own."""
    inner = verifier(oidc, url)

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            found = await inner.verify_token(token)
            if found is None:
                return None
            return AccessToken(token=token, client_id=found.client_id, scopes=found.scopes, resource=url)

    settings = AuthSettings(
        issuer_url=AnyHttpUrl(oidc.url),
        resource_server_url=AnyHttpUrl(url),
        required_scopes=["notes:read"],
        validate_token_resource=True,
    )
    server = MCPServer("peer", auth=settings, token_verifier=Verifier())
    server.tool()(add)
    return server.streamable_http_app()


def fastmcp_app(oidc: AuthorizationServer, url: str) -> Any:
    """Return a server of FastMCP."""
    auth = RemoteAuthProvider(
        token_verifier=verifier(oidc, url),
        authorization_servers=[AnyHttpUrl(oidc.url)],
        base_url=url.removesuffix("/mcp"),
    )
    server = FastMCP("peer", auth=auth)
    server.tool(add)
    return server.http_app()


@pytest.mark.parametrize("app", [mcp_app, fastmcp_app])
async def test_our_client_logs_in(oidc: AuthorizationServer, app: Callable[..., Any]) -> None:
    robot = Robot()
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with serving_asgi(app(oidc, url), port=port):
        auth = OAuth(store=MemoryLogins(), open_browser=robot)
        async with Client(url, auth=auth) as client:
            assert (await client.call("add", a=2, b=3)).text == "5"
    assert len(robot.visits) == 1
