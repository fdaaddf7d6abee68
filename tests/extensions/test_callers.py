"""The callers of tasks in servers of other frameworks: real HTTP, with access tokens."""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token as get_fastmcp_token
from fastmcp.utilities.tasks import TaskConfig
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from antiphon import Client
from antiphon.errors import TaskLost
from antiphon.extensions.fastmcp import Tasks as FastMcpTasks
from antiphon.extensions.mcp import Tasks as McpTasks
from antiphon.store.memory import MemoryStore
from tests.support.serving import serving_asgi

CLAIMS = {"iss": "https://issuer.example", "tenant": "blue", "email": "somebody@example.org"}
TOKENS = {f"secret-of-{user}": user for user in ("ada", "eve")}


def shown(token: AccessToken | None) -> str:
    assert token is not None
    claims = {name: value for name, value in (token.claims or {}).items() if name != "sub"}
    return f"{token.client_id} {token.scopes} {claims} {token.token!r}"


class Verifier(TokenVerifier):
    """Knows two tokens."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = TOKENS.get(token)
        if user is None:
            return None
        return AccessToken(token=token, client_id="app", scopes=["read"], subject=user, claims=CLAIMS)


def official(store: MemoryStore) -> Any:
    """An app of the official SDK."""
    tasks = McpTasks(
        {"who": {"task": "required", "poll_interval": 0.02}}, store=store, task_claims=["tenant"]
    )
    address = AnyHttpUrl("http://127.0.0.1:8000")
    auth = AuthSettings(
        issuer_url=address,
        resource_server_url=address,
        required_scopes=["read"],
        validate_token_resource=False,
    )
    mcp = MCPServer("shop", extensions=[tasks], lifespan=tasks.lifespan, auth=auth, token_verifier=Verifier())

    @mcp.tool()
    async def who() -> str:
        return shown(get_access_token())

    return mcp.streamable_http_app()


def fast(store: MemoryStore) -> Any:
    """An app of FastMCP."""
    tokens = {
        token: {"client_id": "app", "scopes": ["read"], "sub": user, **CLAIMS}
        for token, user in TOKENS.items()
    }
    mcp: FastMCP[Any] = FastMCP("shop", auth=StaticTokenVerifier(tokens))
    mcp.add_extension(FastMcpTasks(store=store, task_claims=["tenant"]))

    @mcp.tool(task=TaskConfig("required"))
    async def who() -> str:
        return shown(get_fastmcp_token())

    return mcp.http_app()


@pytest.mark.parametrize("make", [official, fast])
async def test_a_task_belongs_to_its_caller_and_stores_no_token(make: Any) -> None:
    store = MemoryStore()
    async with serving_asgi(make(store)) as address:
        async with Client(address.url, auth="secret-of-ada") as ada:
            promise = await ada.submit("who")
            result = await promise.result(timeout=30)
            assert result.text == "app ['read'] {'iss': 'https://issuer.example', 'tenant': 'blue'} ''"
            stored = repr(await store.read(promise.id))
        async with Client(address.url, auth="secret-of-eve") as eve:
            with pytest.raises(TaskLost):
                await eve.task(promise.id).status()
    assert "ada" in stored
    assert "secret" not in stored
    assert "example.org" not in stored
