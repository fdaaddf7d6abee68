"""A server that asks everything there is to ask, and what its callers see and get.

`python asking.py PORT`, or with `--stdio`. The tables below say the same for every client and for every
server of a peer's: what a person answers to each question, and how each call must end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import uvicorn
from pydantic import BaseModel, Field

from antiphon import Context, Declined, Server

LOGIN = "https://example.com/login"
ROOT = "file:///home/ada"

ANSWERS: dict[str, Any] = {
    "Name?": {"name": "Ada"},
    "Surname?": {"name": "Lovelace"},
    "Order?": {"size": "large", "count": 3, "gift": True, "price": 2.5},
    "Please?": "decline",
    "Sure?": "cancel",
    "Log in": {},
}
"""What a person answers to each question."""


class Ending(NamedTuple):
    """How a call ends, and what was asked on the way; questions of one round stand in no order."""

    text: str
    asked: tuple[str, ...]
    is_error: bool = False


ENDINGS: dict[str, Ending] = {
    "one_round": Ending("Hello, Ada!", ("Name?",)),
    "two_rounds": Ending("Hello, Ada Lovelace!", ("Name?", "Surname?")),
    "at_once": Ending("Hello, Ada Lovelace!", ("Name?", "Surname?")),
    "form": Ending("3 large, 2.5 each, gift: True, note: none", ("Order?",)),
    "persuade": Ending("so be it: decline", ("Please?",)),
    "give_up": Ending("so be it: cancel", ("Sure?",)),
    "insist": Ending("", ("Please?",), is_error=True),
    "log_in": Ending("logged in", ("Log in",)),
    "think": Ending("I think: Say something", ("sampling",)),
    "folders": Ending(ROOT, ("roots",)),
}
"""How each tool must end for whoever answers like that. A failure says what was declined in its own words."""

EVERYTHING = Ending(f"Ada, logged in, Say something, {ROOT}", ("Name?", "Log in", "sampling", "roots"))
"""How the tool `everything` ends, which only our own server has."""


class Name(BaseModel):
    """One field."""

    name: str


class Order(BaseModel):
    """A field of each kind."""

    size: Literal["small", "large"]
    count: int = Field(ge=1, le=9)
    price: float
    gift: bool = False
    note: str = "none"


server = Server("asking")


def happen(what: str) -> str:
    """A side effect: a line in a file."""
    with Path(os.environ.get("ASKING_EFFECTS", os.devnull)).open("a") as file:
        file.write(what + "\n")
    return what


@server.tool
async def one_round(ctx: Context) -> str:
    """Asks once."""
    return f"Hello, {(await ctx.elicit('Name?', Name)).name}!"


@server.tool
async def two_rounds(ctx: Context) -> str:
    """Asks twice, with something done before, between and after."""
    await ctx.step(happen, "before")
    first = await ctx.elicit("Name?", Name)
    await ctx.step(happen, "between")
    second = await ctx.elicit("Surname?", Name)
    await ctx.step(happen, "after")
    return f"Hello, {first.name} {second.name}!"


@server.tool
def in_a_thread(ctx: Context) -> str:
    """Asks from a function that is not async."""
    return f"Hello, {ctx.wait(ctx.elicit('Name?', Name)).name}!"


@server.tool
async def at_once(ctx: Context) -> str:
    """Asks two questions in one round."""
    first, second = await asyncio.gather(ctx.elicit("Name?", Name), ctx.elicit("Surname?", Name))
    return f"Hello, {first.name} {second.name}!"


@server.tool
async def form(ctx: Context) -> str:
    """Asks for something of each kind."""
    order = await ctx.elicit("Order?", Order)
    return f"{order.count} {order.size}, {order.price} each, gift: {order.gift}, note: {order.note}"


@server.tool
async def persuade(ctx: Context) -> str:
    """Takes a no for an answer."""
    return await _whatever("Please?", ctx)


@server.tool
async def give_up(ctx: Context) -> str:
    """Takes no answer for an answer."""
    return await _whatever("Sure?", ctx)


async def _whatever(question: str, ctx: Context) -> str:
    try:
        return (await ctx.elicit(question, Name)).name
    except Declined as declined:
        return f"so be it: {declined.action}"


@server.tool
async def insist(ctx: Context) -> str:
    """Does not expect a no."""
    return (await ctx.elicit("Please?", Name)).name


@server.tool
async def log_in(ctx: Context) -> str:
    """Sends a person to a page."""
    await ctx.elicit("Log in", url=LOGIN)
    return "logged in"


@server.tool
async def think(ctx: Context) -> str:
    """Asks a model."""
    return f"I think: {(await ctx.sample('Say something', max_tokens=50)).text}"


@server.tool
async def folders(ctx: Context) -> str:
    """Asks where the client works."""
    return " ".join(root.uri for root in await ctx.roots())


@server.tool
async def everything(ctx: Context) -> str:
    """Asks one of everything in one round."""
    name, _, said, roots = await asyncio.gather(
        ctx.elicit("Name?", Name),
        ctx.elicit("Log in", url=LOGIN),
        ctx.sample("Say something", max_tokens=50),
        ctx.roots(),
    )
    return f"{name.name}, logged in, {said.text}, {roots[0].uri}"


@server.prompt
async def story(ctx: Context) -> str:
    """A prompt that asks."""
    return f"Tell of {(await ctx.elicit('Name?', Name)).name}."


@server.resource("story://{place}")
async def told(place: str, ctx: Context) -> str:
    """A resource that asks."""
    return f"{(await ctx.elicit('Name?', Name)).name} in {place}"


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        asyncio.run(server.stdio())
    else:
        uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=20)
