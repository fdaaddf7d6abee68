"""A server behind an authorization server: `python protected.py PORT`, with the issuer in `ISSUER`."""

from __future__ import annotations

import os
import sys

import uvicorn

from antiphon import Context, IssuedTokens, Server

port = int(sys.argv[1])
server = Server(
    "protected",
    authenticate=IssuedTokens(
        os.environ["ISSUER"], resource=f"http://127.0.0.1:{port}/mcp", scopes=["notes:read"]
    ),
)


@server.tool
async def whoami(ctx: Context) -> str:
    """Return who is calling."""
    return f"{ctx.principal.id} {sorted(ctx.principal.scopes)}"


@server.tool(scopes=["notes:write"])
async def save() -> str:
    """Save a note."""
    return "saved"


if __name__ == "__main__":
    uvicorn.run(server.asgi(), host="127.0.0.1", port=port, log_level="warning")
