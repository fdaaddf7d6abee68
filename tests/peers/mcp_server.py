"""A server of the official SDK. Run it with "stdio", or with the port to serve HTTP on."""

import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("peer", version="1.2.3", instructions="Be kind.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("This went wrong.")


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Take a while, in three steps; for ever if it is a second or more."""
    await ctx.info("Starting.")
    for step in range(3):
        await ctx.report_progress(step + 1, 3, f"Step {step + 1}")
        if seconds >= 1:
            await anyio.Event().wait()
    return "Done."


@server.resource("memo://welcome")
def welcome() -> str:
    """The welcome memo."""
    return "Welcome."


@server.resource("memo://{name}/note")
def note(name: str) -> str:
    """A note for somebody."""
    return f"A note for {name}."


@server.prompt()
def introduce(name: str) -> str:
    """Introduce somebody."""
    return f"Please introduce {name}."


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", port=int(sys.argv[1]))
