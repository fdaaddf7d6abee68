"""FastMCP with its tasks extension under measurement, kept in memory, which is its quickest store."""

import os

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")
os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")
os.environ.setdefault("FASTMCP_DOCKET_URL", "memory://bench")

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension
from serve import serve

server = FastMCP("bench")
server.add_extension(TasksExtension())


@server.tool(task=True)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    serve(server.http_app(path="/mcp", json_response=True, stateless_http=True))
