"""A server whose tools ask everything there is to ask, as tasks.

`python promising.py PORT`, or with `--stdio`. The tools and how they end are those of `asking.py`: a call
ends the same whether it was answered or promised. Each client that tries it is a program of its own,
which reads one JSON object from its command line and prints another; `test_promising.py` runs them.
"""

from __future__ import annotations

import asyncio
import os
import sys

import uvicorn

from antiphon import Context, Limits, Server
from tests.interop import asking
from tests.interop.asking import ENDINGS, EVERYTHING, Ending, Name
from tests.support.leases import LONG_LEASE_SECONDS

ELICITING: dict[str, Ending] = {
    **{name: ending for name, ending in ENDINGS.items() if name not in ("think", "folders")},
    "in_a_thread": ENDINGS["one_round"],
}
"""The tools that ask a person and nobody else."""

ALL: dict[str, Ending] = {**ENDINGS, **ELICITING, "everything": EVERYTHING}

AT_THE_SAME_TIME: dict[str, Ending] = {
    **{name: ENDINGS[name] for name in ("one_round", "two_rounds", "at_once", "form")},
    "becoming": ENDINGS["two_rounds"],
}

server = Server(
    "promising",
    store=os.environ.get("ANTIPHON_STORE", "memory:"),
    limits=Limits(lease_seconds=LONG_LEASE_SECONDS),
    secrets=["a secret of the promising"],
)
for _name in ALL:
    server.add_tool(
        getattr(asking, _name), task="required" if _name == "two_rounds" else "optional", poll_interval=0.02
    )


@server.tool(task="optional", answer_within=float("inf"), poll_interval=0.02)
async def becoming(ctx: Context) -> str:
    """Asks, becomes a task, and asks again."""
    first = await ctx.elicit("Name?", Name)
    await ctx.promise()
    second = await ctx.elicit("Surname?", Name)
    return f"Hello, {first.name} {second.name}!"


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        asyncio.run(server.stdio())
    else:
        uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=5)
