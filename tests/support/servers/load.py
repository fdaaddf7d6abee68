"""A server for the load tests: `antiphon run load.py`, or `python load.py PORT`."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import uvicorn
from tests.support.polling import forever, until

from antiphon import Context, Limits, Server

server = Server(
    "load", limits=Limits(max_sessions=100, max_body_bytes=200_000, body_timeout=25.0, drain_timeout=25.0)
)
working = 0
cancelled = 0


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def work(ctx: Context, ends: bool = True) -> str:
    """Say that it works, and end or do not."""
    global working, cancelled
    working += 1
    try:
        await ctx.progress(1, 2)
        if not ends:
            await forever()
        await ctx.progress(2, 2)
    except asyncio.CancelledError:
        cancelled += 1
        raise
    finally:
        working -= 1
    return "worked"


@server.tool
async def hold(file: str, ctx: Context) -> str:
    """Work until there is a file."""
    global working
    working += 1
    try:
        await ctx.progress(1, 2)
        await until(Path(file).exists)
        await ctx.progress(2, 2)
    finally:
        working -= 1
    return "released"


@server.tool
async def state() -> dict[str, int]:
    """Return the number of running calls, cancelled calls and asyncio tasks."""
    gc.collect()
    return {"working": working, "cancelled": cancelled, "tasks": len(asyncio.all_tasks())}


@server.resource("u://{name}")
async def resource(name: str) -> str:
    """Something to read."""
    return name


@server.prompt
async def prompt(name: str) -> str:
    """Something to fill in."""
    return name


if __name__ == "__main__":
    uvicorn.run(
        server.asgi(), port=int(sys.argv[1]), log_level="info", access_log=False, timeout_graceful_shutdown=25
    )
