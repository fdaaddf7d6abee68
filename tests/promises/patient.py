"""A server whose tools run as tasks, for the tests of the client."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

from pydantic import BaseModel

from antiphon import Context, Failure, InternalError, InvalidParams, Limits, Server
from tests.support import polling
from tests.support.leases import LONG_LEASE_SECONDS


class Name(BaseModel):
    name: str


async def made(path: str) -> None:
    """Wait until a file is made; without one, for a few turns of the event loop."""
    if path:
        await polling.until(Path(path).exists, within=float("inf"))
    await polling.turns(3)


def make(store: str | None = None) -> Server:
    """Return a server whose tools run as tasks."""
    server = Server(
        "patient", store=store, limits=Limits(drain_timeout=0.2, lease_seconds=LONG_LEASE_SECONDS)
    )

    @server.tool
    async def at_once() -> str:
        return "at once"

    @server.tool(task="optional", poll_interval=0.1)
    async def sleep(until: str = "") -> str:
        await made(until)
        return "slept"

    @server.tool(task="required", poll_interval=0.1)
    async def ponder() -> str:
        await polling.forever()
        return "42"

    @server.tool(task="required", poll_interval=0.1)
    async def pack(ctx: Context, boxes: int = 3, until: str = "") -> str:
        for box in range(1, boxes + 1):
            await ctx.progress(box, boxes, f"box {box}")
        await made(until)
        return "packed"

    @server.tool(task="required", poll_interval=0.1)
    async def greet(ctx: Context) -> str:
        first = await ctx.elicit("First name?", Name, key="first")
        last = await ctx.elicit("Last name?", Name, key="last")
        return f"Hello, {first.name} {last.name}!"

    @server.tool(task="required", poll_interval=0.1)
    async def both(ctx: Context) -> str:
        first, last = await asyncio.gather(
            ctx.elicit("First name?", Name, key="first"), ctx.elicit("Last name?", Name, key="last")
        )
        return f"{first.name} {last.name}"

    @server.tool(task="required", poll_interval=0.1)
    async def born(ctx: Context) -> str:
        return str(await ctx.elicit("When?", date, key="born"))

    @server.tool(task="required", answer_within=float("inf"), poll_interval=0.1)
    async def turns(ctx: Context) -> str:
        name = await ctx.elicit("First name?", Name, key="first")
        await ctx.promise()
        await polling.turns(3)
        return f"Later, {name.name}!"

    @server.tool(task="optional", answer_within=30.0, poll_interval=0.1)
    async def quick() -> str:
        return "quick"

    @server.tool(task="required", poll_interval=0.1)
    async def fails() -> str:
        raise Failure("This went wrong.", data={"why": "it had to"})

    @server.tool(task="required", poll_interval=0.1)
    async def faults(internal: bool = True) -> str:
        raise InternalError("It broke.") if internal else InvalidParams("Not like this.")

    @server.tool(task="required", poll_interval=0.1, task_ttl=0.3)
    async def fleeting() -> str:
        return "gone soon"

    @server.tool(task="required", poll_interval=0.1, task_ttl=600)
    async def lingering() -> str:
        return "kept for a while"

    return server


server = make()
