"""The server that `compose.yaml` deploys: one plain answer, and one promise with a question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from antiphon import Context, Server

server = Server("weather")


@server.tool
async def now(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


@server.tool(task="optional")
async def forecast(city: str, ctx: Context) -> AsyncIterator[str]:
    """The weather of the next days, which takes a while to find out."""
    unit = await ctx.elicit("Which unit?", str, key="unit")
    for day in range(1, 4):
        await asyncio.sleep(1)
        yield f"Day {day} in {city}: {20 + day}° {unit}"
