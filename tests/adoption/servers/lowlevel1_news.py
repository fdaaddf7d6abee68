"""A low-level server of mcp 1.x that keeps the session of a subscriber, and notifies it from its lifespan."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import AnyUrl

printed: asyncio.Queue[None] = asyncio.Queue()
subscribers = {}


@asynccontextmanager
async def lifespan(server):
    async def notify():
        while True:
            await printed.get()
            for uri, session in subscribers.items():
                await session.send_resource_updated(AnyUrl(uri))
                await session.send_tool_list_changed()

    task = asyncio.create_task(notify())
    yield {}
    task.cancel()


server = Server("news", lifespan=lifespan)


@server.list_resources()
async def list_resources():
    return [types.Resource(uri=AnyUrl("news://all"), name="news")]


@server.read_resource()
async def read_resource(uri):
    return "news"


@server.subscribe_resource()
async def subscribe(uri):
    subscribers[str(uri)] = server.request_context.session


@server.list_tools()
async def list_tools():
    return [types.Tool(name="print", inputSchema={"type": "object"})]


@server.call_tool()
async def call_tool(name, arguments):
    printed.put_nowait(None)
    return [types.TextContent(type="text", text="printed")]


async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
