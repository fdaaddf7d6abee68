"""The service that must not grow: `antiphon run growing.py`. It measures itself.

`GROWTH_FOLDER` is the folder of its files. `GROWTH_LEAK=1` makes calls of `add` leave memory, descriptors,
threads and files behind, so that the judge has something to find.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from pathlib import Path

from antiphon import Context, Limits, Server
from tests.support.own_memory import settled_status, status_number
from tests.support.polling import turns

FOLDER = Path(os.environ.get("GROWTH_FOLDER", "."))
LEAKS = bool(os.environ.get("GROWTH_LEAK"))
TASK_SECONDS = 0.5
"""How long finished tasks are kept."""

server = Server(
    "growing",
    secrets=[bytes(range(32))],
    limits=Limits(
        max_sessions=8,  # of which a round leaves two behind, so that some are evicted
        principal_share=1.0,  # all clients have one address
        max_replay_streams=2,
        body_timeout=2.0,
        keep_alive_interval=1.0,
        lease_seconds=1.0,
        drain_timeout=1.0,
    ),
)
_left: list[object] = []


def _leak() -> None:
    _left.append(([[number] for number in range(60)], bytearray(100_000)))
    if len(_left) % 10 == 0:
        _left.append(os.dup(0))
        (FOLDER / f"left-{len(_left)}").touch()
        threading.Thread(target=threading.Event().wait, daemon=True).start()


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    if LEAKS:
        _leak()
    return str(a + b)


@server.tool
def wait() -> str:
    """Use a thread."""
    return "waited"


@server.tool
async def say(size: int, ctx: Context) -> str:
    """Say something long, with progress."""
    await ctx.progress(1, 2)
    return "x" * size


@server.tool
async def ask(ctx: Context) -> str:
    """Ask something, with a state."""
    ctx.uuid()
    return f"Hello {await ctx.elicit('Name?', str, key='name')}"


@server.tool(task="required", task_ttl=TASK_SECONDS)
async def job(number: int, ctx: Context) -> str:
    """Work for a moment, in steps. Every third job asks something."""

    async def half() -> int:
        return number // 2

    await ctx.step(half)
    if number % 3 == 0:
        await ctx.elicit("Go on?", str, key="on")
    await turns(3)
    return str(number)


@server.resource("u://{name}")
async def resource(name: str) -> str:
    """Something to read and to subscribe to."""
    return name


@server.tool
async def measure() -> dict[str, int]:
    """Measure the process."""
    status = settled_status()
    return {
        "memory": status_number(status, "VmRSS") * 1024,
        "objects": len(gc.get_objects()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": status_number(status, "Threads"),
        "files": sum(1 for _ in FOLDER.iterdir()),
        "coroutines": len(asyncio.all_tasks()),
    }


@server.tool
async def kinds() -> dict[str, int]:
    """Count the objects of the process by type, to tell what grows."""
    gc.collect()
    names = (f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.get_objects())
    return dict(Counter(names))
