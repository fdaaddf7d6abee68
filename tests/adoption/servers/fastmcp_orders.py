"""A server of fastmcp 2, 3 or 4, as its documentation has them. It knows nothing of this library."""

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastmcp import Context, FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.tools import Tool
from mcp.types import ToolListChangedNotification


@dataclass
class Size:
    """What the user is asked for."""

    size: int


@asynccontextmanager
async def lifespan(server):
    yield {"shop": "corner"}


class Shouting(Middleware):
    """Changes the arguments of one tool."""

    async def on_call_tool(self, context, call_next):
        if context.message.name == "shout":
            context.message.arguments = {"text": context.message.arguments["text"].upper()}
        return await call_next(context)


mcp = FastMCP("orders", instructions="Order something.", version="1.2.3", lifespan=lifespan)
mcp.add_middleware(Shouting())


@mcp.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool
def shout(text: str) -> str:
    """Return a text, which middleware has changed."""
    return text


@mcp.tool
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


@mcp.tool
async def order(what: str, ctx: Context) -> str:
    """Order something in a size that the user chooses."""
    return await ask_and_order(what, ctx)


@mcp.tool
async def order_later(what: str, ctx: Context) -> str:
    """Order something that takes long."""
    return await ask_and_order(what, ctx)


@mcp.tool
async def count(ctx: Context) -> int:
    """Count the calls of this session."""
    calls = ctx.get_state("calls")
    if hasattr(calls, "__await__"):
        calls = await calls
    done = ctx.set_state("calls", (calls or 0) + 1)
    if done is not None:
        await done
    return (calls or 0) + 1


@mcp.tool
async def grow(ctx: Context) -> str:
    """Add a tool."""

    def grown() -> str:
        return "grown"

    mcp.add_tool(Tool.from_function(grown, name="grown"))
    if hasattr(ctx, "send_notification"):  # fastmcp 2 sends it by itself
        await ctx.send_notification(ToolListChangedNotification())
    return "grown"


@mcp.tool
async def open_shop(ctx: Context) -> str:
    """Return a value of the lifespan."""
    return ctx.request_context.lifespan_context["shop"]


@mcp.resource("orders://terms", mime_type="text/markdown")
def terms() -> str:
    """The terms."""
    return "# Terms"


@mcp.resource("orders://item/{number}")
def item(number: int) -> str:
    """One item."""
    return f"item {number}"


@mcp.prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


if __name__ == "__main__":
    mcp.run(show_banner=False)
