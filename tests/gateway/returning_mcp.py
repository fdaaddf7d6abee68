"""A server of the official SDK whose tools ask in both ways: `python returning_mcp.py PORT`."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel

server = MCPServer("returning", log_level="ERROR")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
runs = 0


class Name(BaseModel):
    """One field."""

    name: str


@server.tool()
async def returns(ctx: Context) -> str | InputRequiredResult:
    """Return a question, which works in versions without sessions."""
    global runs
    runs += 1
    answers = ctx.input_responses or {}
    if "who" not in answers:
        form = ElicitRequestFormParams(message="Name?", requested_schema=SCHEMA)
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=form)}, request_state="s")
    return f"{answers['who'].content['name']} in run {runs}"  # type: ignore[union-attr,index]


@server.tool()
async def returns_too(ctx: Context) -> str | InputRequiredResult:
    """Return a question, as another tool."""
    return await returns(ctx)


@server.tool()
async def waits(ctx: Context) -> str:
    """Ask on the connection, which works in sessions."""
    answer = await ctx.elicit("Name?", Name)
    return answer.data.name if answer.action == "accept" else answer.action


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
