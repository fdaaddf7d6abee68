"""A server whose tools tell what they do while they do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from antiphon import Context, Failure, Image, InvalidParams, Result, Server
from tests.support.polling import forever


def make() -> Server:
    """A server of its own for each test."""
    server = Server("telling", store="memory:")
    steps = asyncio.Semaphore(0)

    @server.tool
    async def step() -> None:
        """Let a tool that waits go on."""
        steps.release()

    async def count(to: int, ctx: Context, waits: bool = False) -> AsyncIterator[str | Result]:
        """Count, and wait before each number but the first."""
        for number in range(1, to):
            yield f"text {number}"
            if waits:
                await steps.acquire()
        yield Result(f"text {to}", meta={"dev.antiphon/test": True})

    server.tool(name="answer", streams=True)(count)
    server.tool(name="optional", task="optional", poll_interval=0.1)(count)
    server.tool(name="required", task="required", poll_interval=0.1)(count)

    async def ask(ctx: Context) -> AsyncIterator[str]:
        """Ask in the middle."""
        yield "text 1"
        name = await ctx.elicit("Name?", str, key="name")
        yield "text 2"
        yield f"Hello, {name}!"

    server.tool(name="ask")(ask)
    server.tool(name="ask_later", task="optional", poll_interval=0.1)(ask)

    @server.tool(task="optional", poll_interval=0.1, answer_within=float("inf"))
    async def turn(ctx: Context) -> AsyncIterator[str]:
        """Become a task in the middle."""
        yield "text 1"
        await ctx.promise()
        yield "text 2"
        yield "text 3"

    async def fail(ctx: Context, waits: bool = False) -> AsyncIterator[str]:
        """Fail after a while."""
        yield "text 1"
        if waits:
            await steps.acquire()
        raise Failure("It broke.", data={"why": "so"})

    server.tool(name="fail")(fail)
    server.tool(name="fail_later", task="optional", poll_interval=0.1)(fail)

    @server.tool(task="optional", poll_interval=0.1)
    async def refuse(ctx: Context) -> AsyncIterator[str]:
        """End with an error of the protocol's."""
        yield "text 1"
        await steps.acquire()
        raise InvalidParams("Not like this.")

    @server.tool(task="optional", poll_interval=0.1)
    async def wait(ctx: Context) -> AsyncIterator[str]:
        """Begin, and never end."""
        yield "text 1"
        await forever()

    async def measure(ctx: Context) -> AsyncIterator[str | Result]:
        """Not only for people."""
        yield "text 1"
        await steps.acquire()
        yield Result("text 2", data={"measured": 2})

    server.tool(name="measure")(measure)
    server.tool(name="measure_later", task="optional", poll_interval=0.1)(measure)

    @server.tool
    async def paint(ctx: Context) -> AsyncIterator[str | Image]:
        """Not only words."""
        yield "text 1"
        yield Image.of(b"\x89PNG", "image/png")

    return server


server = make()
