"""The seeds' tools, with leases so short that a test can wait for their end; a fleet of processes loads it.

`EFFECTS` is a file in which each run of the tool `once` leaves a line.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from examples.seeds import server

from antiphon import Context, Limits

EFFECTS = Path(os.environ.get("EFFECTS", os.devnull))

server.limits = Limits(lease_seconds=float(os.environ.get("LEASE", "1.0")), drain_timeout=1.0)
server.configure(max_running_tasks=50)


def begin(what: str) -> None:
    """A side effect."""
    with EFFECTS.open("a") as file:
        file.write(f"began {what}\n")


def end(what: str) -> None:
    """Another."""
    with EFFECTS.open("a") as file:
        file.write(f"ended {what}\n")


@server.tool(task="optional", poll_interval=0.05)
async def once(word: str, ctx: Context, seconds: float = 0.05) -> str:
    """Does something before and after a while."""
    await ctx.step(begin, word)
    await asyncio.sleep(seconds)
    await ctx.step(end, word)
    return f"once {word}"
