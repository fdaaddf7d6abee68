"""The official SDK under measurement, reporting progress: what it has for output before the end of a call."""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from serve import serve

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def count(n: int, ctx: Context) -> str:
    """Report progress as fast as it is taken."""
    for number in range(n):
        await ctx.report_progress(number, n, f"segment {number}")
    return "done"


if __name__ == "__main__":
    serve(server.streamable_http_app())
