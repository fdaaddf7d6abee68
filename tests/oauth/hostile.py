"""A server and an issuer that mean harm or make mistakes, as a test tells them."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from antiphon import Client, MemoryLogins, OAuth
from antiphon.client.oauth.issuer_requests import MAX_DOCUMENT_BYTES
from tests.support.loop_time import LoopTime


class Hostile:
    """A server and its issuer on one port. A test changes its documents, and reads the requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[str] = []
        self.challenge = "Bearer"
        self.resource: dict[str, Any] = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        self.issuer: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
        }
        self.token: dict[str, Any] = {"access_token": "t", "token_type": "Bearer", "expires_in": 600}
        self.registration: dict[str, Any] | None = None
        """The error for every client that registers itself."""
        self.deleted_clients: set[str] = set()
        self.pages: list[str] = []
        self.is_refused = False
        """Whether the person refuses to log in."""

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        self.requests.append(request.path)
        if request.path == "/mcp":
            return web.Response(status=401, headers={"WWW-Authenticate": self.challenge})
        if request.path.startswith(("/.well-known/oauth-protected-resource", "/mcp/metadata")):
            return web.json_response(self.resource)
        if request.path == "/.well-known/oauth-authorization-server":
            return web.json_response(self.issuer)
        if request.path == "/register":
            if self.registration is not None:
                return web.json_response(self.registration, status=403)
            return web.json_response({"client_id": f"client-{self.requests.count('/register')}"}, status=201)
        if request.path in ("/token", "/idp"):
            if (await request.post()).get("client_id") in self.deleted_clients:
                return web.json_response({"error": "invalid_client"}, status=401)
            return web.json_response(self.token)
        if "/slow/" in request.path:
            LoopTime.here().advance(200)
        if request.path == "/large":
            return web.Response(body=b"[" * (MAX_DOCUMENT_BYTES + 1))
        if request.path == "/elsewhere":
            return web.Response(status=302, headers={"Location": f"{self.url}/large"})
        return web.Response(status=404)

    async def approve(self, page: str) -> str:
        """Log in or refuse to, as a browser that is sent back at once."""
        self.pages.append(page)
        query = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
        answer = "error=access_denied" if self.is_refused else "code=c"
        return f"{query['redirect_uri']}?{answer}&state={query['state']}"

    async def connect(self, **options: Any) -> None:
        """Connect a client, which is never let in."""
        auth = OAuth(**{"store": MemoryLogins(), "open_browser": self.approve, **options})
        async with Client(f"{self.url}/mcp", auth=auth):
            pass
