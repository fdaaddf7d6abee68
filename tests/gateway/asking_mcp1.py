"""A server of the official SDK of 2025-11-25 that asks in the middle of a call.

Over standard streams, or over HTTP if it gets a port.

It is run by the Python in `.venv/mcp-1`, which has neither our library nor the tests.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("upstream", log_level="ERROR")
runs = 0


class Size(BaseModel):
    """One field."""

    size: int


@server.tool()
async def order(what: str, ctx: Context) -> str:
    """Order something, after asking how many."""
    global runs
    runs += 1
    answer = await ctx.elicit(f"How many of {what}?", Size)
    if answer.action != "accept":
        return f"{answer.action} in run {runs}"
    return f"{answer.data.size} x {what} in run {runs}"


@server.tool()
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Think."))
    said = await ctx.session.create_message([message], max_tokens=10)
    return f"{said.model} says {said.content.text}"


@server.tool()
async def folders(ctx: Context) -> str:
    """Ask for the client's folders."""
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots) or "none"


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and report each number."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
    await ctx.info("counted")
    return str(to)


@server.tool()
async def linger(ctx: Context, marker: str = "") -> str:
    """Report that it begins, and never end. Make a file when it is cancelled."""
    await ctx.report_progress(1, None, "begun")
    try:
        await asyncio.Event().wait()
    finally:
        if marker:
            Path(marker).touch()
    return "ended"


@server.tool()
async def block(marker: str) -> str:
    """Make a file, never end, and read no message meanwhile."""
    Path(marker).touch()
    signal.pause()
    return "blocked"


@server.tool()
async def pid() -> int:
    """Return the number of this process."""
    return os.getpid()


@server.tool()
async def die(code: int) -> str:
    """End this process."""
    os._exit(code)


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("it does not work")


@server.resource("notes://today")
async def today() -> str:
    """What is for today."""
    return "Nothing."


@server.resource("notes://of/{day}")
async def of_day(day: str) -> str:
    """What is for a day."""
    return f"Something on {day}."


@server.prompt()
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}!"


@server.completion()
async def complete(ref, argument, context):  # type: ignore[no-untyped-def]
    """Complete every argument."""
    from mcp.types import Completion

    return Completion(values=[f"{argument.name}={argument.value}!"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.settings.port = int(sys.argv[1])
    server.run("streamable-http" if len(sys.argv) > 1 else "stdio")
