"""A server of fastmcp that keeps the session of a caller, and notifies it from its lifespan."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from fastmcp import Context, FastMCP

kept = []
printed: asyncio.Queue[None] = asyncio.Queue()


@asynccontextmanager
async def lifespan(server):
    async def notify():
        while True:
            await printed.get()
            for session in kept:
                await session.send_tool_list_changed()

    task = asyncio.create_task(notify())
    yield {}
    task.cancel()


mcp = FastMCP("news", lifespan=lifespan)


@mcp.tool(name="keep")
async def keep(ctx: Context) -> str:
    kept.append(ctx.session)
    return "kept"


@mcp.tool(name="print")
async def print_news() -> str:
    printed.put_nowait(None)
    return "printed"


if __name__ == "__main__":
    mcp.run()
