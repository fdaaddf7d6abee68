"""A server of the official SDK with resources, prompts, completions and an image. Run it with the port."""

import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp.types import Completion

server = MCPServer("peer catalog")
CITIES = ("Bergen", "Berlin", "Bern", "Boston")


@server.resource("memo://welcome")
def welcome() -> str:
    """The welcome memo."""
    return "Welcome."


@server.resource("pictures://dot", mime_type="image/png")
def dot() -> bytes:
    """A dot."""
    return b"\x89PNG\r\n\x1a\ndot"


@server.resource("weather://{city}")
def weather(city: str) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


@server.prompt()
def travel(city: str, means: str = "train") -> str:
    """Plan a journey."""
    return f"Plan a journey to {city} by {means}."


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    """Complete the name of a city."""
    typed = getattr(argument, "value", "")
    return Completion(values=[city for city in CITIES if city.startswith(typed)])


@server.tool()
def draw() -> Image:
    """Draw a dot."""
    return Image(data=b"\x89PNG\r\n\x1a\ndot", format="png")


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
