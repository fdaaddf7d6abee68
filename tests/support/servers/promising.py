"""A server that gives promises: `python promising.py PORT`, its store and its habits from the environment.

`DIE_AFTER=n` kills the process, without a goodbye, right after its n-th write to the store was durable.
Leases are long: whoever kills the process ends them by hand, with `tests.support.leases`.
`YIELD_WHILE=path` leaves the tasks in the store to other processes while that file exists.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import BaseModel
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.polling import forever, until

from antiphon import Context, Limits, Server
from antiphon.runtime.tasks import worker
from antiphon.store import open_store

worker.CLAIM_INTERVAL_SECONDS = 0.1  # so that a lease that a test has ended is noticed soon

EFFECTS = Path(os.environ.get("EFFECTS", os.devnull))
DIE_AFTER = int(os.environ.get("DIE_AFTER", "0"))
FOREVER = float("inf")
YIELD_WHILE = os.environ.get("YIELD_WHILE")


class CrashingStore:
    """A store that kills its process at a given write."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._writes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._crash_after_limit(found) if name in ("create", "append") else found

    def _crash_after_limit(self, write: Callable[..., Any]) -> Callable[..., Any]:
        async def writing(*args: Any, **kwargs: Any) -> Any:
            done = await write(*args, **kwargs)
            self._writes += 1
            if self._writes == DIE_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return writing


class YieldingStore:
    """A store whose process takes up no task while a file exists."""

    def __init__(self, store: Any, path: str) -> None:
        self._store = store
        self._path = Path(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        return () if self._path.exists() else await self._store.claim(*args, **kwargs)


store: Any = open_store(os.environ["ANTIPHON_STORE"])
if DIE_AFTER:
    store = CrashingStore(store)
if YIELD_WHILE:
    store = YieldingStore(store, YIELD_WHILE)
server = Server(
    "promising",
    store=store,
    limits=Limits(lease_seconds=LONG_LEASE_SECONDS, drain_timeout=2.0),
    secrets=["a secret of the promising"],
)


class Name(BaseModel):
    name: str


def happen(what: str) -> str:
    """A side effect."""
    with EFFECTS.open("a") as file:
        file.write(f"{what}\n")
    return what.upper()


@server.tool(task="optional", poll_interval=0.05)
async def journey(ctx: Context) -> str:
    """Run a step, ask, run another, ask twice at once, and run a last one; report progress after each."""

    async def tell(what: str) -> None:
        # Who tells it differs from run to run, so that no number can have two contents unnoticed.
        await ctx.emit(f"{what} @{os.getpid()}")

    await tell("off")
    one = await ctx.step(happen, "one")
    await tell(one)
    first = await ctx.elicit("First?", Name, key="first")
    await tell(f"first {first.name}")
    two = await ctx.step(happen, f"two {first.name}")
    second, third = await asyncio.gather(
        ctx.elicit("Second?", Name, key="second"), ctx.elicit("Third?", Name, key="third")
    )
    await tell(two)
    three = await ctx.step(happen, f"three {second.name} {third.name}")
    await tell(three)
    return f"{one} / {two} / {three}"


@server.tool(task="optional", poll_interval=0.05)
async def slow(path: str, ctx: Context) -> str:
    """Wait for a file between two steps."""
    await ctx.step(happen, "began")
    await until(Path(path).exists, within=FOREVER)
    await ctx.step(happen, "ended")
    return "slow"


@server.tool(task="optional", poll_interval=0.05)
async def drip(path: str, ctx: Context) -> str:
    """Wait for a file between two steps, and report progress."""
    try:
        await ctx.emit("1")
        await ctx.step(happen, "began")
        await ctx.emit("2")
        await until(Path(path).exists, within=FOREVER)
        await ctx.emit(f"3 @{os.getpid()}")
        await ctx.step(happen, "ended")
        await ctx.emit(f"4 @{os.getpid()}")
    finally:
        happen(f"left {os.getpid()}")
    return "slow"


@server.tool(task="optional", resume=False)
async def fragile() -> str:
    """Cannot be run again."""
    await forever()
    return "fragile"


@server.tool(task="optional", poll_interval=0.05, max_attempts=3)
async def deadly() -> str:
    """Kill the process, each time."""
    happen("deadly")
    os._exit(9)


@server.tool(task="optional", poll_interval=0.05, max_attempts=3)
async def nap(path: str) -> str:
    """Wait for a file, without a step that would show progress."""
    await until(Path(path).exists, within=FOREVER)
    return "napped"


@server.tool(task="optional", poll_interval=0.05)
async def quick(number: int) -> str:
    """Is done at once."""
    return str(number)


if __name__ == "__main__":
    uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=3)
