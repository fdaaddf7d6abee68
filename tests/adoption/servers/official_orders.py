"""An `MCPServer` of mcp 2.x, or a `FastMCP` of mcp 1.x, as their documentation has them.

It knows nothing of this library.
"""

import os
from contextlib import asynccontextmanager

from pydantic import BaseModel

try:
    from mcp.server.mcpserver import Context, MCPServer

    VERSION = {"version": "1.2.3"}
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer

    VERSION = {}  # mcp 1.x has no such option


class Size(BaseModel):
    """What the user is asked for."""

    size: int


@asynccontextmanager
async def lifespan(server):
    yield {"shop": "corner"}


mcp = MCPServer("orders", instructions="Order something.", lifespan=lifespan, log_level="ERROR", **VERSION)


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no more tea")


async def ask_and_order(what: str, ctx: Context) -> str:
    with open(os.environ["RUNS"], "a") as runs:
        runs.write(f"{what}\n")
    await ctx.report_progress(1, 2, "asking")
    await ctx.info("asking")
    answer = await ctx.elicit("Which size?", Size)
    if answer.action != "accept":
        return f"No {what}: {answer.action}"
    return f"{answer.data.size} {what}"


@mcp.tool()
async def order(what: str, ctx: Context) -> str:
    """Order something in a size that the user chooses."""
    return await ask_and_order(what, ctx)


@mcp.tool()
async def order_later(what: str, ctx: Context) -> str:
    """Order something that takes long."""
    return await ask_and_order(what, ctx)


@mcp.tool()
async def open_shop(ctx: Context) -> str:
    """Return a value of the lifespan."""
    return ctx.request_context.lifespan_context["shop"]


@mcp.tool()
async def grow(ctx: Context) -> str:
    """Add a tool."""

    def grown() -> str:
        return "grown"

    mcp.add_tool(grown)
    await ctx.session.send_tool_list_changed()
    return "grown"


@mcp.resource("orders://terms", mime_type="text/markdown")
def terms() -> str:
    """The terms."""
    return "# Terms"


@mcp.resource("orders://item/{number}")
def item(number: int) -> str:
    """One item."""
    return f"item {number}"


@mcp.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


@mcp.completion()
async def complete(ref, argument, context):
    from mcp.types import Completion

    return Completion(values=[f"{argument.value}da"])


if __name__ == "__main__":
    mcp.run()
