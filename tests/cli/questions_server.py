"""A server whose tools ask questions."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from antiphon import Context, Declined, Elicit, InputRequired, Server

server = Server("questions")


class Order(BaseModel):
    name: Annotated[str, Field(title="Full name", min_length=2)]
    size: Annotated[Literal["small", "large"], Field(description="How big it is")] = "small"
    count: Annotated[int, Field(ge=1, le=9)] = 1
    price: float
    extras: list[Literal["milk", "sugar"]] = []
    express: bool = False
    note: str | None = None


LABELLED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "color": {
            "type": "string",
            "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}],
        },
        "year": {"type": "string", "enum": ["2", "1"]},
    },
    "required": ["color", "year"],
}


@server.tool
async def order(ctx: Context) -> Order:
    """Ask for a form with all kinds of fields."""
    return await ctx.elicit("What would you like?", Order, key="order")


@server.tool
async def paint(ctx: Context) -> dict[str, Any]:
    """Ask for choices with labels, and for numeric choices."""
    return await ctx.elicit("Which?", LABELLED)


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask for a form without fields."""
    await ctx.elicit("Really?", {"type": "object", "properties": {}})
    return "done"


@server.tool
async def log_in(ctx: Context) -> str:
    """Ask the user to open a URL."""
    await ctx.elicit("Please log in.", url="https://bücher.example/login?for=42", key="login")
    return "logged in"


@server.tool
async def born(ctx: Context) -> str:
    """Ask for a date. The form accepts dates that do not exist."""
    return str(await ctx.elicit("When were you born?", date, key="born"))


@server.tool
async def both(ctx: Context) -> str:
    """Ask two questions at once."""
    first, second = await asyncio.gather(ctx.elicit("First?", Name), ctx.elicit("Second?", Name))
    return f"{first.name} {second.name}"


class Name(BaseModel):
    name: str


@server.tool
async def stubborn(ctx: Context) -> str:
    """Continue after the user declines."""
    try:
        await ctx.elicit("Name?", Name)
    except Declined as declined:
        await ctx.info(f"so be it: {declined.action}")
        await asyncio.Event().wait()
    return "done"


@server.tool
async def hostile(ctx: Context) -> str:
    """Ask a question that contains control characters."""
    await ctx.elicit("Your\x1b]0;gotcha\x07 name?", Name)
    return "done"


@server.tool
async def odd(ctx: Context) -> str | InputRequired:
    """Ask with a schema that is not a form."""
    if ctx.input_responses:
        return "done"
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}
    return InputRequired({"odd": Elicit("?", schema)})
