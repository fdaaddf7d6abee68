"""A server whose tools emit segments: `python emitting.py PORT`, or `--stdio`; store from the environment."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from pydantic import BaseModel
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.polling import until

from antiphon import Context, Failure, Limits, Server

server = Server(
    "emitting",
    store=os.environ.get("ANTIPHON_STORE"),
    limits=Limits(lease_seconds=LONG_LEASE_SECONDS, drain_timeout=0.5),
    secrets=["a secret of the emitting"],
)
PACE = Path(os.environ.get("PACE", os.devnull))


class Name(BaseModel):
    name: str


@server.tool(task="optional", poll_interval=0.05)
async def count(n: int) -> AsyncIterator[str]:
    """Emits its numbers."""
    for number in range(1, n + 1):
        yield str(number)


@server.tool(task="optional", poll_interval=0.05)
async def paced(n: int) -> AsyncIterator[str]:
    """Emits as many numbers as the file says, and waits for it to say more."""
    for number in range(1, n + 1):
        await until(lambda last=number: last <= int(PACE.read_text() or 0), math.inf)
        yield str(number)


@server.tool(task="optional", poll_interval=0.05)
async def bulk(size: int, n: int) -> AsyncIterator[str]:
    """Emits much."""
    for number in range(1, n + 1):
        yield f"{number} ".ljust(size, "x")


@server.tool(task="optional", poll_interval=0.05)
async def fail(n: int) -> AsyncIterator[str]:
    """Emits, and fails."""
    for number in range(1, n + 1):
        yield str(number)
    raise Failure("It cannot be done.")


@server.tool(task="optional", poll_interval=0.05)
async def ask(ctx: Context) -> AsyncIterator[str]:
    """Emits, asks and emits."""
    yield "1"
    name = await ctx.elicit("Who?", Name, key="who")
    yield f"2 {name.name}"


@server.tool(task="optional", poll_interval=0.05)
async def ask_then_paced(n: int, ctx: Context) -> AsyncIterator[str]:
    """Asks, and then emits like `paced`."""
    name = await ctx.elicit("Who?", Name, key="who")
    async for number in paced(n):
        yield f"{number} {name.name}"


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        asyncio.run(server.stdio())
    else:
        uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=2)
