"""A low-level server of mcp 2.x that is built in `main`. It knows nothing of this library."""

import asyncio
import os

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


async def list_tools(ctx, params):
    return types.ListToolsResult(
        tools=[
            types.Tool(name="order", description="Order something.", input_schema=SCHEMA),
            types.Tool(name="order_later", description="Order something.", input_schema=SCHEMA),
            types.Tool(name="fail", input_schema={"type": "object"}),
        ]
    )


async def call_tool(ctx, params):
    if params.name == "fail":
        raise ValueError("no more tea")
    what = params.arguments["what"]
    with open(os.environ["RUNS"], "a") as runs:
        runs.write(f"{what}\n")
    await ctx.session.report_progress(1, 2, "asking")
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    answer = await ctx.session.elicit_form("Which size?", schema, related_request_id=ctx.request_id)
    text = f"No {what}: {answer.action}" if answer.action != "accept" else f"{answer.content['size']} {what}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main():
    server = Server(
        "orders",
        version="1.2.3",
        instructions="Order something.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def run():
    asyncio.run(main())


if __name__ == "__main__":
    run()
