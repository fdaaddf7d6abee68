"""A server that does everything that the workbench shows, and a console that looks at it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pydantic

from antiphon import Client, Context, Server
from antiphon.console.sources import ServerSource
from antiphon.model.content import Image, ResourceLink
from antiphon.server_target import ServerTarget
from tests.console.support import RunningConsole, serving_console
from tests.support.polling import forever

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


class Trip(pydantic.BaseModel):
    city: str
    days: int = pydantic.Field(ge=1, le=14)


def bench_server(**options: Any) -> Server:
    server = Server("bench", instructions="Try the tools.", **options)

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        """Adds **two** numbers."""
        return a + b

    @server.tool
    async def plan(ctx: Context) -> str:
        """Asks where to go."""
        trip = await ctx.elicit("Where do you want to go?", Trip)
        return f"{trip.days} days in {trip.city}"

    @server.tool
    async def show(ctx: Context) -> list[Any]:
        """Shows what people would see."""
        await ctx.log("info", "showing")
        return [
            f"# A heading\n\n- one\n- two\n\n{MARKUP}",
            Image.of(PIXEL),
            ResourceLink("note://one", "The first note"),
        ]

    @server.tool
    async def people() -> list[dict[str, Any]]:
        """Returns a table."""
        return [{"name": "Ada", "born": 1815}, {"name": "Alan", "born": 1912}]

    @server.tool(task="optional")
    async def count(to: Annotated[int, pydantic.Field(ge=1)], ctx: Context) -> str:
        """Counts slowly."""
        for number in range(1, to + 1):
            await ctx.emit(f"{number}")
            await ctx.progress(number, to, f"at {number}")
        return "counted"

    @server.tool
    async def wait(ctx: Context) -> str:
        """Waits until it is cancelled."""
        await forever()
        return "never"

    @server.tool
    async def model(ctx: Context) -> str:
        """Asks the model."""
        return str((await ctx.sample("Say a word.")).text)

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return f"The note {name}."

    @server.completion("note://{name}", "name")
    async def names(typed: str) -> list[str]:
        return [each for each in ("one", "other", "two") if each.startswith(typed)]

    @server.prompt
    async def greet(name: str) -> str:
        """Greets somebody."""
        return f"Greet {name} warmly."

    return server


def source_of(server: Server, id: str = "bench", **options: Any) -> ServerSource:
    """Return a server in the process of the test."""
    return ServerSource(id, server.name, "own", lambda user, **more: Client(server, **{**options, **more}))


def source_at(url: str, id: str = "remote") -> ServerSource:
    """Return a server at a URL."""
    target = ServerTarget(url, url, {"Authorization": "Bearer a-secret-token"}, 5.0)
    return ServerSource(id, url, "url", lambda user, **more: target.client(**more), target=target)


@asynccontextmanager
async def bench_console(server: Server | None = None, **options: Any) -> AsyncIterator[RunningConsole]:
    """Serve a console whose only server is the one of these tests."""
    server = server or bench_server()
    async with server.running(), serving_console(servers=[source_of(server)], **options) as console:
        yield console
