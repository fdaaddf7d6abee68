"""A server of the official SDK with our tasks in it: `python mcp_server.py PORT STORE`."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from antiphon import Limits
from antiphon.extensions.mcp import Tasks
from tests.support.polling import forever

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

tasks = Tasks(
    {
        "approve": {"poll_interval": 0.02},
        "review": {"replay": True, "poll_interval": 0.02},
        "import_rows": {"task": "required", "replay": True, "poll_interval": 0.02},
        "charge": {"task": "required", "poll_interval": 0.02},
        "introduce": {"poll_interval": 0.02},
    },
    store=sys.argv[2],
    limits=Limits(lease_seconds=3600.0),
)
mcp = MCPServer("inside", extensions=[tasks], lifespan=tasks.lifespan)


class Approval(BaseModel):
    approved: bool


def note(log: str, line: str) -> None:
    """Write a line that tests count."""
    with Path(log).open("a") as file:
        file.write(f"{line}\n")


@mcp.tool()
async def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@mcp.tool()
async def approve(item: str, log: str, ctx: Context) -> str:
    """Asks somebody."""
    note(log, "asks")
    answer = await ctx.elicit(f"Approve {item}?", Approval)
    note(log, "answered")
    return f"{item}: {answer.action}, {answer.data.approved if answer.action == 'accept' else None}"


@mcp.tool()
async def review(item: str, log: str, ctx: Context) -> str:
    """Asks somebody, and may be run again."""
    return await approve(item, log, ctx)


@mcp.tool()
async def import_rows(waits: bool, log: str, ctx: Context) -> dict[str, int]:
    """May be run again, and then ends."""
    note(log, "begins")
    await ctx.report_progress(1, 2, "reading")
    if waits and Path(log).read_text().count("begins") == 1:
        await forever()
    return {"rows": 3}


@mcp.tool()
async def charge(waits: bool, log: str) -> str:
    """Must not be run again."""
    note(log, "begins")
    if waits:
        await forever()
    return "charged"


@mcp.tool()
async def introduce(ctx: Context) -> str | InputRequiredResult:
    """Asks in the way of multi round-trip requests."""
    answer = (ctx.input_responses or {}).get("who")
    if isinstance(answer, ElicitResult):
        return f"{ctx.request_state}: {(answer.content or {})['name']}"
    params = ElicitRequestFormParams(message="Who are you?", requested_schema=SCHEMA)
    return InputRequiredResult(input_requests={"who": ElicitRequest(params=params)}, request_state="round 1")


if __name__ == "__main__":
    mcp.run("streamable-http", port=int(sys.argv[1]))
