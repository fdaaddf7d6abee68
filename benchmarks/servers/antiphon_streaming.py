"""Antiphon under measurement, emitting segments: on the call's own stream, or through a task on SQLite."""

import asyncio
import tempfile
import time
from pathlib import Path

from run_antiphon import run

from antiphon import Context, Limits, Server

path = Path(tempfile.mkdtemp()) / "tasks.db"
server = Server("bench", store=f"sqlite:///{path}", limits=Limits(max_running_tasks=200, max_calls=2000))


@server.tool
async def count(n: int, ctx: Context) -> None:
    """Emit numbers as fast as they are taken."""
    for number in range(n):
        await ctx.emit(f"segment {number}")


@server.tool(task="required", poll_interval=0.01)
async def count_in_a_task(n: int, ctx: Context) -> None:
    """Emit numbers as fast as they are taken."""
    for number in range(n):
        await ctx.emit(f"segment {number}")


@server.tool
async def drip(n: int, pause: float, ctx: Context) -> None:
    """Emit the time, now and then."""
    for _ in range(n):
        await asyncio.sleep(pause)
        await ctx.emit(str(time.monotonic_ns()))


if __name__ == "__main__":
    run(__file__)
