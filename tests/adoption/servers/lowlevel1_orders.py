"""A low-level server of mcp 1.x that is built in `main`. It knows nothing of this library."""

import asyncio
import os

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


async def main():
    server = Server("orders", version="1.2.3", instructions="Order something.")

    @server.list_tools()
    async def list_tools():
        return [
            types.Tool(name="order", description="Order something.", inputSchema=SCHEMA),
            types.Tool(name="order_later", description="Order something.", inputSchema=SCHEMA),
            types.Tool(
                name="order_often",
                inputSchema=SCHEMA,
                execution=types.ToolExecution(taskSupport="optional"),
            ),
            types.Tool(name="fail", inputSchema={"type": "object"}),
        ]

    @server.call_tool()
    async def call_tool(name, arguments):
        if name == "fail":
            raise ValueError("no more tea")
        what = arguments["what"]
        with open(os.environ["RUNS"], "a") as runs:
            runs.write(f"{what}\n")
        context = server.request_context
        if context.meta is not None and context.meta.progressToken is not None:
            await context.session.send_progress_notification(context.meta.progressToken, 1, 2, "asking")
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
        answer = await context.session.elicit("Which size?", schema, related_request_id=context.request_id)
        text = (
            f"No {what}: {answer.action}" if answer.action != "accept" else f"{answer.content['size']} {what}"
        )
        return [types.TextContent(type="text", text=text)]

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def run():
    asyncio.run(main())


if __name__ == "__main__":
    run()
