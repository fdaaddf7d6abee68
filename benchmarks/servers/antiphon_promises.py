"""Antiphon under measurement, giving promises kept in a SQLite file with full synchronisation."""

import os
import tempfile
from pathlib import Path

from run_antiphon import run

from antiphon import Context, Limits, Server

path = Path(os.environ.get("BENCH_STORE") or Path(tempfile.mkdtemp()) / "tasks.db")
server = Server("bench", store=f"sqlite:///{path}", limits=Limits(max_running_tasks=200))


@server.tool(task="required", poll_interval=0.01)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(task="required", poll_interval=0.01)
async def ask(number: int, ctx: Context) -> str:
    """Ask for a number, and add it."""
    return str(number + await ctx.elicit("How many?", int, key="copies"))


if __name__ == "__main__":
    run(__file__)
