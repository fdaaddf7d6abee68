"""A server that asks: `python asking.py PORT`, its version and its side effects from the environment."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import uvicorn
from pydantic import BaseModel

from antiphon import Context, Server, shed_after

EFFECTS = Path(os.environ.get("ASKING_EFFECTS", os.devnull))
NEW = os.environ.get("ASKING_VERSION") == "new"

server = Server("asking", shed=shed_after(0) if os.environ.get("ASKING_SHED") else None)


class Name(BaseModel):
    name: str


def happen(what: str) -> str:
    """A side effect that must not happen twice."""
    with EFFECTS.open("a") as file:
        file.write(what + "\n")
    return what


@server.tool
async def five_rounds(ctx: Context) -> str:
    """Does something, then asks five times, one after the other."""
    done = await ctx.step(happen, "five_rounds")
    names = [(await ctx.elicit(f"Name {n}?", Name, key=f"name_{n}")).name for n in range(5)]
    return f"{done}: {' '.join(names)}"


@server.tool
async def link_accounts(ctx: Context) -> str:
    """Asks for two accounts at once; which the second is depends on the version."""
    second = "microsoft" if NEW else "google"
    github, other = await asyncio.gather(
        ctx.elicit("GitHub?", Name, key="github_login"), ctx.elicit(f"{second}?", Name, key=f"{second}_login")
    )
    return f"github={github.name} {second}={other.name}"


@server.tool
async def add_up(upto: int, ctx: Context) -> str:
    """Adds up in steps, each with a side effect."""
    total = 0
    for number in range(1, upto + 1):
        await ctx.step(happen, f"add {number}")
        total += number
    return str(total)


if __name__ == "__main__":
    uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning")
