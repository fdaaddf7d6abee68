"""A server with a small memory budget: `antiphon run guarded.py`, `python guarded.py PORT`, or `--stdio`."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import uvicorn
from tests.support.polling import forever

from antiphon import Context, Limits, Server

server = Server("guarded", limits=Limits(max_memory_bytes=32 * 1024 * 1024, body_timeout=20.0))


@server.tool
async def wait(stuff: Any = None) -> str:
    """Keep the arguments as long as the caller is there."""
    await forever()
    return "waited"


@server.tool
async def say(size: int, ctx: Context) -> str:
    """Send a large notification."""
    await ctx.info("x" * size)
    return "said"


@server.tool
async def reserved() -> int:
    """Return how much memory is reserved."""
    gc.collect()
    return server.engine.budget.reserved


@server.resource("note://{name}")
async def note(name: str) -> str:
    """Something to subscribe to."""
    return name


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        asyncio.run(server.stdio())
    else:
        uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", access_log=False)
