"""A server of FastMCP with its tasks extension, kept in memory. Run it with the port to serve HTTP on."""

import asyncio
import os
import sys

os.environ.setdefault("FASTMCP_DOCKET_URL", "memory://peer")

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

server = FastMCP("peer", version="1.2.3")
server.add_extension(TasksExtension())


@server.tool(task=True)
async def sleep(seconds: float) -> str:
    """Take a while; for ever if it is a second or more."""
    if seconds >= 1:
        await asyncio.Event().wait()
    return "Done."


@server.tool(task=True)
async def fail() -> str:
    """Fail."""
    raise ValueError("This went wrong.")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), show_banner=False)
