"""A server behind a real authorization server, and a robot that logs in for a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from antiphon import Client, Context, IssuedTokens, Issuer, OAuth, Server
from antiphon.client.oauth.logins import LoginStore
from tests.support.authorization_server import AuthorizationServer, sign_in
from tests.support.process import free_port
from tests.support.serving import running


def notes(tokens: IssuedTokens) -> Server:
    """Return a server with a tool for everybody, and tools that need scopes."""
    server = Server("notes", authenticate=tokens, store="memory:")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return f"{ctx.principal.id} {sorted(ctx.principal.scopes)}"

    @server.tool(scopes=["notes:write"])
    async def save() -> str:
        return "saved"

    @server.tool(scopes=["admin"])
    async def purge() -> str:
        return "purged"

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"Hello, {await ctx.elicit('Who?', str, key='who')}!"

    @server.tool(task="required")
    async def write() -> str:
        return "written"

    return server


@asynccontextmanager
async def serving_notes(oidc: AuthorizationServer, path: str = "/mcp") -> AsyncIterator[str]:
    """Serve the notes behind an authorization server; yields the URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{path}"
    issuer = Issuer(oidc.url, client_id="notes", client_secret="notes-secret")
    tokens = IssuedTokens(issuer, resource=url, scopes=["notes:read"])
    async with running(notes(tokens), port=port, path=path):
        yield url


@dataclass
class Robot:
    """A person with a browser. `visits` are the pages that the person was shown."""

    user: str = "ada"
    visits: list[str] = field(default_factory=list)

    async def __call__(self, url: str) -> str:
        self.visits.append(url)
        return await sign_in(url, self.user)


async def no_browser(url: str) -> None:
    """Fail, in place of a browser that must not be opened."""
    raise AssertionError("a browser was opened")


async def log_in(url: str, store: LoginStore) -> None:
    """Log Ada in at a server."""
    async with Client(url, auth=OAuth(store=store, open_browser=Robot())):
        pass
