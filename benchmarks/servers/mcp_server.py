"""The official SDK under measurement, by its high-level server class.

The tool is declared as its documentation declares one. Configured for speed with what it documents:
`json_response=True` (a plain JSON answer instead of an event stream), its own logging down to errors.
2026-07-28 requests are stateless by themselves; `stateless_http` is left off so that the same app also
answers 2025-11-25 within sessions, and it is not read on the 2026-07-28 path.
"""

from mcp.server import MCPServer
from serve import serve

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    serve(server.streamable_http_app(json_response=True))
