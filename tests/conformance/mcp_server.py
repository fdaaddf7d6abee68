"""A server of the official SDK with our tasks: `python tests/conformance/mcp_server.py PORT [STORE]`."""

from __future__ import annotations

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from promising import LONG
from pydantic import BaseModel

from antiphon.extensions.mcp import Tasks, current_context
from tests.support.polling import forever

tasks = Tasks(
    {
        "slow_compute": {"poll_interval": 0.2},
        "failing_job": {"task": "required", "poll_interval": 0.2},
        "protocol_error_job": {"poll_interval": 0.2},
        "confirm_delete": {"poll_interval": 0.2},
        "multi_input": {"poll_interval": 0.2},
        "test_tool_with_task": {
            "task": "required",
            "answer_within": float("inf"),
            "replay": True,
            "poll_interval": 0.2,
        },
    },
    store=sys.argv[2] if len(sys.argv) > 2 else None,
)
mcp = MCPServer("official-sdk-with-tasks", version="1.0.0", extensions=[tasks], lifespan=tasks.lifespan)


class Confirmed(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


@mcp.tool()
def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@mcp.tool()
async def slow_compute(seconds: float = 0, label: str = "") -> str:
    """Ends at once, or never if it is told to take long."""
    if seconds > LONG:
        await forever()
    return f"Computed {label} in {seconds} seconds."


@mcp.tool()
async def failing_job() -> str:
    """Fails."""
    raise ToolError("This job always fails.")


@mcp.tool()
async def protocol_error_job() -> str:
    """Ends with a JSON-RPC error."""
    raise MCPError(-32603, "This job ends with a protocol error.")


@mcp.tool()
async def confirm_delete(ctx: Context, filename: str = "a file") -> str:
    """Asks before it deletes."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirmed)
    if answer.action == "accept" and answer.data.confirm:
        return f"Deleted {filename}."
    return f"Kept {filename}."


@mcp.tool()
async def multi_input(ctx: Context) -> str:
    """Asks for two things at once."""
    first, second = await asyncio.gather(ctx.elicit("First name?", Name), ctx.elicit("Last name?", Name))
    assert first.action == second.action == "accept"
    return f"{first.data.name} {second.data.name}"


@mcp.tool()
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, and goes on as a task."""
    answer = await ctx.elicit("What is your name?", Name)
    assert answer.action == "accept"
    await current_context().promise()
    return f"Hello, {answer.data.name}!"


if __name__ == "__main__":
    mcp.run("streamable-http", port=int(sys.argv[1]), json_response=False)
