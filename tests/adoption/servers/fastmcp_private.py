"""A server of fastmcp 2, 3 or 4 that verifies tokens itself."""

from __future__ import annotations

from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token

mcp = FastMCP(
    "private",
    auth=StaticTokenVerifier(
        tokens={
            "good": {"client_id": "app", "scopes": ["notes"], "sub": "ada"},
            "poor": {"client_id": "app", "scopes": []},
        },
        required_scopes=["notes"],
    ),
)


@mcp.tool
def whoami() -> str:
    token = get_access_token()
    return "nobody" if token is None else str(token.claims["sub"])


if __name__ == "__main__":
    mcp.run()
