"""A FastMCP server with our tasks in it: `python tests/conformance/fastmcp_server.py PORT [STORE]`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from mcp.shared.exceptions import MCPError
from promising import LONG
from pydantic import BaseModel

from antiphon.extensions.fastmcp import Tasks, current_context
from tests.support.polling import forever

task = TaskConfig(poll_interval=timedelta(seconds=0.2))
required = TaskConfig("required", timedelta(seconds=0.2))
mcp = FastMCP("fastmcp-with-tasks", version="1.0.0")
mcp.add_extension(
    Tasks(
        store=sys.argv[2] if len(sys.argv) > 2 else None,
        tools={"test_tool_with_task": {"answer_within": float("inf"), "replay": True}},
    )
)


class Confirmed(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


@mcp.tool
def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@mcp.tool(task=task)
async def slow_compute(seconds: float = 0, label: str = "") -> str:
    """Ends at once, or never if it is told to take long."""
    if seconds > LONG:
        await forever()
    return f"Computed {label} in {seconds} seconds."


@mcp.tool(task=required)
async def failing_job() -> str:
    """Fails."""
    raise ToolError("This job always fails.")


@mcp.tool(task=task)
async def protocol_error_job() -> str:
    """Ends with a JSON-RPC error."""
    raise MCPError(-32603, "This job ends with a protocol error.")


@mcp.tool(task=task)
async def confirm_delete(ctx: Context, filename: str = "a file") -> str:
    """Asks before it deletes."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirmed)
    if answer.action == "accept" and answer.data.confirm:
        return f"Deleted {filename}."
    return f"Kept {filename}."


@mcp.tool(task=task)
async def multi_input(ctx: Context) -> str:
    """Asks for two things at once."""
    first, second = await asyncio.gather(ctx.elicit("First name?", Name), ctx.elicit("Last name?", Name))
    assert first.action == second.action == "accept"
    return f"{first.data.name} {second.data.name}"


@mcp.tool(task=required)
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, and goes on as a task."""
    answer = await ctx.elicit("What is your name?", Name)
    assert answer.action == "accept"
    await current_context().promise()
    return f"Hello, {answer.data.name}!"


if __name__ == "__main__":
    mcp.run("http", port=int(sys.argv[1]), show_banner=False)
