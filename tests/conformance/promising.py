"""The part of the server under test that gives promises."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from antiphon import Context, Failure, InternalError, Server
from tests.support.polling import forever

__all__ = ["LONG", "register"]

LONG = 10
"""The suite cancels what is to take longer than these seconds, and waits for what is not."""


class Confirmed(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


def register(server: Server) -> None:
    """Add what gives promises to a server."""

    @server.tool
    async def greet(name: str) -> str:
        """Greets at once."""
        return f"Hello, {name}!"

    @server.tool(task="optional", poll_interval=0.2)
    async def slow_compute(seconds: float = 0, label: str = "") -> str:
        """Ends at once, or never if it is told to take long."""
        if seconds > LONG:
            await forever()
        return f"Computed {label} in {seconds} seconds."

    @server.tool(task="required", poll_interval=0.2)
    async def failing_job() -> str:
        """Fails."""
        raise Failure("This job always fails.")

    @server.tool(task="optional", poll_interval=0.2)
    async def protocol_error_job() -> str:
        """Ends with a JSON-RPC error."""
        raise InternalError("This job ends with a protocol error.")

    @server.tool(task="optional", poll_interval=0.2)
    async def confirm_delete(ctx: Context, filename: str = "a file") -> str:
        """Asks before it deletes."""
        answer = await ctx.elicit(f"Delete {filename}?", Confirmed)
        return f"Deleted {filename}." if answer.confirm else f"Kept {filename}."

    @server.tool(task="optional", poll_interval=0.2)
    async def multi_input(ctx: Context) -> str:
        """Asks for two things at once."""
        first, second = await asyncio.gather(ctx.elicit("First name?", Name), ctx.elicit("Last name?", Name))
        return f"{first.name} {second.name}"

    @server.tool(task="required", answer_within=float("inf"), poll_interval=0.2)
    async def test_tool_with_task(ctx: Context) -> str:
        """Asks first, and goes on as a task."""
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        await ctx.promise()
        return f"Hello, {answer.name}!"
