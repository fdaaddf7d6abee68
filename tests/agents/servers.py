"""The server that the tests of agents call."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import Field

from antiphon import Context, Failure, Image, ResourceLink, Result, Server

PIXEL = base64.b64encode(b"GIF89a\x01\x00\x01\x00").decode()


def travel_server() -> tuple[Server, asyncio.Event]:
    """A server with a tool for each ending, and the event that lets its slow task end."""
    server = Server("travel", instructions="Book trips.")
    release = asyncio.Event()

    @server.tool
    async def book(city: str, ctx: Context) -> str:
        """Book a trip."""
        seat = await ctx.elicit("Window or aisle?", Literal["window", "aisle"], key="seat")
        return f"Booked {city}, {seat}."

    @server.tool
    async def weather(city: str, days: int = 1) -> dict[str, Any]:
        """Forecast the weather."""
        if city == "Atlantis":
            raise Failure("Atlantis is under water.")
        return {"city": city, "days": days}

    @server.tool(task="optional", poll_interval=0.05)
    async def charter(city: str) -> str:
        """Charter a plane."""
        await release.wait()
        return f"A plane to {city}."

    @server.tool
    async def tell(ctx: Context) -> AsyncIterator[str]:
        """Tell a story."""
        yield "Once"
        yield "upon"

    @server.tool
    async def picture() -> Result:
        """Draw a map."""
        return Result(["A map:", Image(PIXEL, "image/gif"), ResourceLink("file:///map.txt", "map")])

    return server, release


def filter_server() -> Server:
    """A server with an argument whose key Anthropic refuses."""
    server = Server("filter")

    @server.tool
    async def find(id: Annotated[str, Field(alias="filter[id]")]) -> str:
        """Find a record."""
        return id

    return server
