"""The seeds' tools, for a fleet of processes, with leases so short that a test can wait until they expire.

`EFFECTS` is a file to which each run of the tool `once` appends a line, and `GATE` a file for which it waits.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from examples.seeds import server
from tests.support.polling import until

from antiphon import Context, Limits

EFFECTS = Path(os.environ.get("EFFECTS", os.devnull))
GATE = Path(os.environ.get("GATE", os.devnull))

# The example creates the server, so its limits can only be replaced in the engine.
server.engine.limits = server.engine.tasks.limits = Limits(
    lease_seconds=float(os.environ.get("LEASE", "1.0")), drain_timeout=1.0
)
server.configure(max_running_tasks=50)


def begin(what: str) -> None:
    """Record that a run has begun."""
    with EFFECTS.open("a") as file:
        file.write(f"began {what}\n")


def end(what: str) -> None:
    """Record that a run has ended."""
    with EFFECTS.open("a") as file:
        file.write(f"ended {what}\n")


@server.tool(task="optional", poll_interval=0.05)
async def once(word: str, ctx: Context) -> str:
    """Run a step, wait for the gate, and run another step."""
    await ctx.step(begin, word)
    await until(GATE.exists, math.inf)
    await ctx.step(end, word)
    return f"once {word}"
