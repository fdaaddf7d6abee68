"""The service under test, as a process: `python service.py PORT`. Each of its steps writes notes.

Environment: `SOAK_NOTES` is the file of the notes, `SOAK_VERSION` is `a` or `b`, `SOAK_CLOCK` a file with the
seconds by which the wall clock of this process is wrong, and `SOAK_UNFENCED=1` switches off the check of
tokens in the store, so that the judge has something to find.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path


class _WrongClock:
    """The wall clock of this process, as wrong as the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._right = time.time
        self._offset = 0.0
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while True:
            try:
                self._offset = float(self._path.read_text())
            except (OSError, ValueError):
                pass
            time.sleep(0.02)

    def __call__(self) -> float:
        return self._right() + self._offset


if "SOAK_CLOCK" in os.environ:  # before the library is imported: it may keep a reference to the function
    time.time = _WrongClock(Path(os.environ["SOAK_CLOCK"]))

from antiphon import Context, Limits, Server  # noqa: E402
from antiphon.store import rules  # noqa: E402
from tests.soak.notes import note  # noqa: E402

if os.environ.get("SOAK_UNFENCED"):
    rules._is_valid_token = lambda row, token: True

LEASE_SECONDS = float(os.environ.get("SOAK_LEASE", "1.0"))
NOTES = os.environ.get("SOAK_NOTES", os.devnull)
VERSION = os.environ.get("SOAK_VERSION", "a")
KEEP_SECONDS = 100 * 3600.0
"""How long ended tasks are kept: longer than any clock of the soak jumps, so that the judge can read them."""

server = Server(
    "soak",
    store=os.environ.get("ANTIPHON_STORE"),
    limits=Limits(lease_seconds=LEASE_SECONDS, drain_timeout=1.0, max_running_tasks=40),
    secrets=["a secret that all processes of the soak have"],
)


async def work(ctx: Context, number: int, step: str, seconds: float) -> str:
    """Do something outside that must not be done twice."""
    key, run = ctx.idempotency_key, uuid.uuid4().hex
    note(NOTES, "begin", number, step, key, run)
    await asyncio.sleep(seconds)
    note(NOTES, "end", number, step, key, run)
    return run


@server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS)
async def chain(number: int, ctx: Context) -> str:
    """Do three things in a row."""
    for step in ("one", "two", "three"):
        await ctx.step(work, ctx, number, step, 0.02)
    return f"chain {number}"


@server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS)
async def ask(number: int, ctx: Context) -> str:
    """Do something, ask, and do something else."""
    await ctx.step(work, ctx, number, "before", 0.02)
    name = await ctx.elicit("Who?", str, key="who")
    await ctx.step(work, ctx, number, "after", 0.02)
    return f"ask {number} {name}"


@server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS)
async def long(number: int, ctx: Context) -> str:
    """Do something that takes longer than two leases."""
    await ctx.step(work, ctx, number, "long", 2.5 * LEASE_SECONDS)
    return f"long {number}"


@server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS)
async def overtaken(number: int, ctx: Context) -> str:
    """Do two things that take long enough for a paused process to come back between them."""
    await ctx.step(work, ctx, number, "first", 1.5 * LEASE_SECONDS)
    await ctx.step(work, ctx, number, "second", 3 * LEASE_SECONDS)
    return f"overtaken {number}"


@server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS)
async def stream(number: int, ctx: Context) -> AsyncIterator[str]:
    """Send parts, and do something between them."""
    for part in range(4):
        await ctx.step(work, ctx, number, f"part {part}", 0.01)
        yield f"{part}"


@server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS, resume=False)
async def once(number: int, ctx: Context) -> str:
    """Do something that is never tried twice, after a question."""
    await ctx.elicit("Sure?", str, key="who")
    await ctx.step(work, ctx, number, "once", 0.05)
    return f"once {number}"


if VERSION == "b":

    @server.tool(task="required", poll_interval=0.1, task_ttl=KEEP_SECONDS)
    async def extra(number: int, ctx: Context, note: str = "") -> str:
        """Do something that version a does not know."""
        await ctx.step(work, ctx, number, "extra", 0.02)
        return f"extra {number}"


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]))
