"""A server of the official SDK that verifies tokens itself: `FastMCP` of 1.x, or `MCPServer` of 2.x."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[import-not-found, no-redef]


class Verifier:
    """Knows two tokens."""

    async def verify_token(self, token: str) -> AccessToken | None:
        scopes = {"good": ["notes"], "poor": []}.get(token)
        return None if scopes is None else AccessToken(token=token, client_id="ada", scopes=scopes)


mcp = Server(
    "private",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url="https://issuer.example.com",  # type: ignore[arg-type]
        resource_server_url="https://notes.example.com/mcp",  # type: ignore[arg-type]
        required_scopes=["notes"],
        **(
            {"validate_token_resource": False}
            if "validate_token_resource" in AuthSettings.model_fields
            else {}
        ),
    ),
)


@mcp.tool()
def whoami() -> str:
    return "ada"


if __name__ == "__main__":
    mcp.run()
