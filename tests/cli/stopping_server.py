"""A server whose calls and tasks last until a file appears, to be stopped in between."""

from __future__ import annotations

import os
from pathlib import Path

from antiphon import Context, Limits, Server
from tests.support.polling import until, wait_until

FOLDER = Path(os.environ["FOLDER"])

server = Server(
    "stopping",
    limits=Limits(
        drain_timeout=float(os.environ.get("DRAIN", "30")),
        shutdown_delay=float(os.environ.get("DELAY", "0")),
        lease_seconds=60,
    ),
)


async def wait_for_end() -> None:
    """Wait for the file."""
    await until((FOLDER / "end").exists, within=3600)


@server.tool
async def ping() -> str:
    """Answer at once."""
    return "here"


@server.tool
async def process() -> int:
    """Return the id of the process."""
    return os.getpid()


@server.tool
async def hold(name: str, ctx: Context, speaks: bool = False) -> str:
    """Answer when the file is there."""
    if speaks:
        await ctx.log("error", "one message, so that the answer is an event stream")
    (FOLDER / name).touch()
    await wait_for_end()
    return "done"


@server.tool(task="optional")
def block(name: str) -> str:
    """Answer when the file is there, from a thread."""
    (FOLDER / name).touch()
    wait_until((FOLDER / "end").exists, within=3600)
    return "done"


@server.tool(task="required", poll_interval=0.1)
async def work(name: str) -> str:
    """Note which process runs the task, and wait for the file."""
    with (FOLDER / name).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    await wait_for_end()
    return str(os.getpid())
