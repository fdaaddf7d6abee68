"""A FastMCP server with our tasks in it: `python fastmcp_server.py PORT STORE`."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from antiphon import Limits
from antiphon.extensions.fastmcp import Tasks
from tests.support.polling import forever

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OPTIONAL = TaskConfig(poll_interval=timedelta(seconds=0.02))
REQUIRED = TaskConfig("required", timedelta(seconds=0.02))

mcp = FastMCP("inside")
mcp.add_extension(
    Tasks(
        store=sys.argv[2],
        tools={"import_rows": {"replay": True}, "review": {"replay": True}},
        limits=Limits(lease_seconds=3600.0),
    )
)


class Approval(BaseModel):
    approved: bool


def note(log: str, line: str) -> None:
    """Write a line that tests count."""
    with Path(log).open("a") as file:
        file.write(f"{line}\n")


@mcp.tool
async def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@mcp.tool(task=OPTIONAL)
async def approve(item: str, log: str, ctx: Context) -> str:
    """Asks somebody."""
    note(log, "asks")
    answer = await ctx.elicit(f"Approve {item}?", Approval)
    note(log, "answered")
    return f"{item}: {answer.action}, {answer.data.approved if answer.action == 'accept' else None}"


@mcp.tool(task=OPTIONAL)
async def review(item: str, log: str, ctx: Context) -> str:
    """Asks somebody, and may be run again."""
    return await approve(item, log, ctx)


@mcp.tool(task=REQUIRED)
async def import_rows(waits: bool, log: str, ctx: Context) -> dict[str, int]:
    """May be run again, and then ends."""
    note(log, "begins")
    await ctx.report_progress(1, 2, "reading")
    if waits and Path(log).read_text().count("begins") == 1:
        await forever()
    return {"rows": 3}


@mcp.tool(task=REQUIRED)
async def charge(waits: bool, log: str) -> str:
    """Must not be run again."""
    note(log, "begins")
    if waits:
        await forever()
    return "charged"


@mcp.tool(task=OPTIONAL)
async def introduce(ctx: Context) -> str | InputRequiredResult:
    """Asks in the way of multi round-trip requests."""
    answer = (ctx.input_responses or {}).get("who")
    if isinstance(answer, ElicitResult):
        return f"{ctx.request_state}: {(answer.content or {})['name']}"
    params = ElicitRequestFormParams(message="Who are you?", requested_schema=SCHEMA)
    return InputRequiredResult(input_requests={"who": ElicitRequest(params=params)}, request_state="round 1")


if __name__ == "__main__":
    mcp.run("http", port=int(sys.argv[1]), show_banner=False)
