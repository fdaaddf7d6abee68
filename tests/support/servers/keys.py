"""A server whose steps write their idempotency keys to a file: `antiphon run keys.py --store …`.

`EFFECTS` names the file. The process that finds no file `DIED` makes one and dies, without a goodbye, after
the step that `DIES_AT` names is done and before it is recorded.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from tests.support.polling import turns

from antiphon import Context, Limits, Server

EFFECTS, DIED = Path(os.environ["EFFECTS"]), Path(os.environ["DIED"])
DIES_AT = os.environ.get("DIES_AT", "")
NAMES = ("first", "second")

server = Server(
    "keys",
    secrets=["a secret that all processes have"],
    limits=Limits(drain_timeout=0.5),
)


async def do(name: str, ctx: Context) -> str:
    """Leave a trace outside that survives the process, and die if this is the time."""
    with EFFECTS.open("a") as file:
        file.write(f"{name} {ctx.idempotency_key}\n")
        file.flush()
        os.fsync(file.fileno())
    if name == DIES_AT and not DIED.exists():
        DIED.touch()
        os._exit(9)
    return name


@server.tool(task="required", task_ttl=None)
async def pay(ctx: Context) -> str:
    """Do two things, one after the other."""
    ctx.uuid()
    return f"{await ctx.step(do, 'first', ctx)} {await ctx.step(do, 'second', ctx)}"


@server.tool(task="required", task_ttl=None)
async def pay_all(ctx: Context) -> str:
    """Do several things at once. The second time, they begin in another order."""

    async def one(name: str, number: int) -> str:
        await turns(0 if DIED.exists() else number)
        return await ctx.step(do, name, ctx)

    return " ".join(await asyncio.gather(one("first", 9), one("second", 5)))


@server.tool(task="required", task_ttl=None)
async def pay_stamped(ctx: Context) -> str:
    """Do several things at once, with the time as an argument."""

    async def stamped(name: str, at: datetime) -> str:
        return await do(name, ctx)

    return " ".join(await asyncio.gather(*(ctx.step(stamped, name, ctx.now()) for name in NAMES)))


@server.tool(task="required", task_ttl=None)
async def pay_inside(ctx: Context) -> str:
    """Do several things inside of a step."""

    async def both() -> str:
        return " ".join([await ctx.step(do, name, ctx) for name in NAMES])

    return await ctx.step(both)


@server.tool(task="required", task_ttl=None)
def pay_in_threads(ctx: Context) -> str:
    """Do several things in threads. The second time, they begin in another order."""

    has_begun, earlier = threading.Event(), NAMES[DIED.exists()]

    async def begin(name: str) -> str:
        has_begun.set()
        return await do(name, ctx)

    def one(name: str) -> str:
        if name != earlier:
            has_begun.wait(60)
        return ctx.wait(ctx.step(begin, name))

    with ThreadPoolExecutor(2) as pool:
        return " ".join(pool.map(one, NAMES))


@server.tool(task="optional", answer_within=60, task_ttl=None)
async def turn(ctx: Context) -> str:
    """Become a task in the middle, then do something."""
    await ctx.promise()
    return await ctx.step(do, "first", ctx)


@server.tool
async def ask(ctx: Context) -> str:
    """Ask before anything is done."""
    await ctx.elicit("Sure?", bool, key="sure")
    return await ctx.step(do, "first", ctx)
