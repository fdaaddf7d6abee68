"""A server whose tools ask in each way, over stdio: `python shapes.py --stdio`; or for a test to serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic import BaseModel

from antiphon import Context, Failure, Server


class User(BaseModel):
    name: str


class Place(BaseModel):
    city: str
    street: str


def create_server(**options: object) -> Server:
    """Return the server; every tool may run as a task."""
    server = Server("shapes", secrets=["a secret of at least so many bytes"], **options)  # type: ignore[arg-type]
    runs: list[str] = []

    @server.tool(task="optional")
    async def greet(ctx: Context) -> str:
        user = await ctx.elicit("Please provide your GitHub username", User)
        return f"Hello {user.name}"

    @server.tool(task="optional")
    async def refuse(ctx: Context) -> str:
        await ctx.elicit("May I?", User)
        return "yes"

    @server.tool(task="optional")
    async def write(ctx: Context) -> str:
        answer = await ctx.sample("Write a line", max_tokens=20)
        return f"Wrote: {answer.text}"

    @server.tool(task="optional")
    async def both(ctx: Context) -> str:
        user, line, place = await asyncio.gather(
            ctx.elicit("Who?", User),
            ctx.sample("Write a line", max_tokens=20),
            ctx.elicit("Where?", Place),
        )
        return f"{user.name}: {line.text} in {place.city}, {place.street}"

    @server.tool(task="optional")
    async def twice(ctx: Context) -> str:
        first = await ctx.elicit("The first?", User)
        second = await ctx.elicit("The second?", User)
        return f"{first.name} and {second.name}"

    @server.tool(task="optional")
    async def charge(amount: int, ctx: Context) -> str:
        def take(amount: int) -> str:
            runs.append(str(amount))
            return f"charged {amount}"

        receipt = await ctx.step(take, amount)
        user = await ctx.elicit("Whose is it?", User)
        return f"{receipt} for {user.name}, charged {len(runs)} times"

    @server.tool(task="optional")
    async def tell(ctx: Context) -> AsyncIterator[str]:
        yield "one"
        user = await ctx.elicit("Who?", User)
        yield user.name

    @server.tool(task="optional")
    async def roots(ctx: Context) -> str:
        return str(len(await ctx.roots()))

    @server.tool(replay=False)
    async def held(ctx: Context) -> str:
        user = await ctx.elicit("Who?", User)
        return f"Held {user.name}"

    @server.tool
    async def crossed(ctx: Context) -> str:
        """Ask two things, in another order when the step is in the journal."""
        asks = asyncio.Event()

        async def wait() -> None:
            await asks.wait()

        async def giver() -> User:
            await ctx.step(wait)
            return await ctx.elicit("Who gives?", User)

        async def taker() -> User:
            asks.set()
            return await ctx.elicit("Who takes?", User)

        first, second = await asyncio.gather(giver(), taker())
        return f"{first.name} gives, {second.name} takes"

    gives_up, has_given_up = asyncio.Event(), asyncio.Event()

    @server.tool(replay=False)
    async def impatient(ctx: Context) -> str:
        """Ask one thing, withdraw it at the end of `hurry`, and ask another."""
        keep = asyncio.create_task(ctx.elicit("Who keeps it?", User))
        await gives_up.wait()
        keep.cancel()
        await asyncio.wait({keep})
        has_given_up.set()
        user = await ctx.elicit("Who deletes it?", User)
        return f"{user.name} deletes it"

    @server.tool
    async def hurry() -> None:
        gives_up.set()
        await has_given_up.wait()

    @server.tool(task="optional")
    async def fail() -> str:
        raise Failure("It is broken")

    return server


if __name__ == "__main__":
    asyncio.run(create_server(store="memory:").stdio())
