"""The official Python client signs in to our server: discovery, registration, PKCE, and step-up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.support import process
from tests.support.authorization_server import CALLBACK, AuthorizationServer, sign_in


class Memory:
    """Keeps the tokens and the registration of a client."""

    tokens: OAuthToken | None = None
    info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.info = client_info


@asynccontextmanager
async def signing_in(url: str, mode: str, memory: Memory, scopes: list[list[str]]) -> AsyncIterator[Client]:
    """A client whose user, Ada, signs in when a server asks for it; notes the scopes that it asks for."""
    came_back: list[str] = []

    async def visit(url: str) -> None:
        asked = parse_qs(urlsplit(url).query)["scope"][0].split()
        scopes.append(sorted(set(asked) - {"offline_access"}))  # which the client adds for itself
        came_back.append(await sign_in(url, "ada"))

    async def come_back() -> AuthorizationCodeResult:
        query = {name: values[0] for name, values in parse_qs(urlsplit(came_back[-1]).query).items()}
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], application_type="native")
    auth = OAuthClientProvider(url, metadata, memory, visit, come_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_registers_and_signs_in(
    oidc: AuthorizationServer, tmp_path: Path, mode: str
) -> None:
    memory, scopes = Memory(), list[list[str]]()
    with process.started("protected.py", tmp_path, env={"ISSUER": oidc.url}) as server:
        async with signing_in(server.url, mode, memory, scopes) as client:
            said = await client.call_tool("whoami", {})
            assert said.content[0].text == f"{oidc.url}#ada ['notes:read']"
    assert memory.info is not None
    assert scopes == [["notes:read"]]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_asks_for_more_scopes_after_a_403(
    oidc: AuthorizationServer, tmp_path: Path, mode: str
) -> None:
    # The client registers with the scopes that it asks for first, so one that may ask for more is registered.
    memory, scopes = Memory(), list[list[str]]()
    memory.info = OAuthClientInformationFull(
        client_id="desktop", redirect_uris=[CALLBACK], token_endpoint_auth_method="none", issuer=oidc.url
    )
    with process.started("protected.py", tmp_path, env={"ISSUER": oidc.url}) as server:
        async with signing_in(server.url, mode, memory, scopes) as client:
            assert (await client.call_tool("whoami", {})).content[0].text.startswith(f"{oidc.url}#ada")
            assert (await client.call_tool("save", {})).content[0].text == "saved"
    assert scopes == [["notes:read"], ["notes:read", "notes:write"]]
