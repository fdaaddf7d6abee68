"""A server whose function is not run again, and notes in a file when it runs."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel
from tests.support.leases import LONG_LEASE_SECONDS

from antiphon import Context, Limits, Server
from antiphon.runtime.tasks import worker

worker.CLAIM_INTERVAL_SECONDS = 0.1  # so that a lease that has ended is noticed soon

LEASE = float(os.environ.get("LEASE", LONG_LEASE_SECONDS))

server = Server("held", limits=Limits(lease_seconds=LEASE, drain_timeout=0.5))


class Name(BaseModel):
    name: str


def note(what: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a") as effects:
        effects.write(f"{what}\n")


@server.tool(replay=False, task="optional", poll_interval=0.05)
async def greet(ctx: Context) -> str:
    note("began")
    try:
        return f"Hello, {(await ctx.elicit('Name?', Name, key='name')).name}!"
    finally:
        note("ended")
