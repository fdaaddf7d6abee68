"""The server whose store and sealed states are kept beside it: `antiphon run server.py --store sqlite:///…`.

Versions without a number have filled them; `test_upgrade.py` goes on with them in this one. What later
versions leave is written by `write.py`, with the server in `desk.py`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from antiphon import Artifact, Context, Elicit, Failure, InputRequired, InvalidParams, Limits, Server
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.polling import until

TEN_YEARS = 10 * 365 * 24 * 3600.0
EFFECTS = Path(os.environ.get("EFFECTS", os.devnull))
GATE = Path(os.environ.get("GATE", os.devnull))

server = Server(
    "upgraded",
    secrets=["a secret that outlives versions"],
    limits=Limits(
        state_lifetime=TEN_YEARS,
        session_lifetime=TEN_YEARS,
        artifact_lifetime=TEN_YEARS,
        lease_seconds=LONG_LEASE_SECONDS,
        drain_timeout=0.5,
    ),
)


def effect(name: str) -> str:
    """Leave a trace outside, and say that it was left."""
    with EFFECTS.open("a") as file:
        file.write(f"{name}\n")
    return f"did {name}"


@server.tool(task="optional", task_ttl=None, answer_within=None)
async def pay(amount: int, ctx: Context) -> str:
    """Reserve, ask, then charge."""
    reserved = await ctx.step(effect, f"reserve {amount}")
    approved = await ctx.elicit(f"Pay {amount}?", bool, key="approve")
    who = await ctx.elicit("Who pays?", str, key="who")
    charged = await ctx.step(effect, f"charge {amount}")
    return f"{reserved}, {charged}, approved={approved} by {who} at {ctx.now().year}"


@server.tool
async def order(item: str, ctx: Context) -> str:
    """Ask twice, with a step between; never a task."""
    size = await ctx.elicit(f"Which size of {item}?", str, key="size")
    await ctx.step(effect, f"order {item}")
    colour = await ctx.elicit("Which colour?", str, key="colour")
    return f"{size} {item} in {colour}"


@server.tool
async def explicit(ctx: Context) -> str | InputRequired:
    """The explicit style: questions and state are returned."""
    if ctx.state is None:
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return InputRequired({"name": Elicit("Your name?", form)}, state={"round": 1})
    return f"{ctx.input_responses['name']['content']['name']} in round {ctx.state['round']}"


@server.tool(task="optional", task_ttl=None)
async def long(ctx: Context) -> AsyncIterator[str]:
    """One step and two segments, then a wait for the gate, then the rest."""
    yield await ctx.step(effect, "begin")
    yield "waiting"
    await until(GATE.exists)  # another process opens it
    yield await ctx.step(effect, "end")


@server.tool(task="optional", task_ttl=None)
async def count(ctx: Context) -> AsyncIterator[str]:
    """Three segments."""
    for number in range(1, 4):
        yield f"segment {number}"


@server.tool(task="optional", task_ttl=None)
async def fail(how: str, ctx: Context) -> str:
    """Fail, as a tool or as a request."""
    raise Failure("It did not work.") if how == "tool" else InvalidParams("That cannot be asked.")


@server.tool
async def report(title: str) -> Artifact[Any]:
    """Make something to keep."""
    return Artifact({"title": title, "rows": [1, 2, 3]}, type="report")


@server.prompt
async def letter(ctx: Context) -> str:
    """Ask for a name, in a prompt."""
    await ctx.step(effect, "open a letter")
    return f"Dear {await ctx.elicit('To whom?', str, key='to')},"


@server.resource("note://today")
async def note(ctx: Context) -> str:
    """Ask for a name, in a resource."""
    await ctx.step(effect, "open a note")
    return f"A note for {await ctx.elicit('For whom?', str, key='for')}."
