"""A server with one of everything: `python everything.py PORT`, or `python everything.py --stdio`."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import uvicorn
from pydantic import BaseModel, Field
from tests.support.polling import until

from antiphon import (
    BlobContents,
    Context,
    Failure,
    Image,
    Limits,
    PromptMessage,
    Result,
    Server,
    Text,
    ToolAnnotations,
)

server = Server(
    "everything",
    version="1.2.3",
    title="Everything",
    instructions="Try each tool.",
    limits=Limits(max_body_bytes=1_000_000, body_timeout=20.0),
    page_size=4,
)


class Weather(BaseModel):
    """What the weather is like."""

    city: str
    celsius: float
    words: list[str] = []


@dataclass
class Place:
    """Where something is."""

    latitude: float
    longitude: float = 0.0


@server.tool(annotations=ToolAnnotations(read_only_hint=True), title="Add two numbers")
async def add(a: int, b: Annotated[int, Field(description="The second.", ge=-1000)] = 1) -> str:
    """Add two numbers.

    Args:
        a: The first.
    """
    return str(a + b)


@server.tool
async def weather(city: str, place: Place | None = None) -> Weather:
    """Tell the weather, as structured content."""
    return Weather(city=city, celsius=21.5 if place is None else place.latitude, words=["mild"])


@server.tool
async def primes(below: int) -> list[int]:
    """List primes; structured, and no object."""
    return [n for n in range(2, below) if all(n % d for d in range(2, n))]


@server.tool
async def picture() -> list[Text | Image]:
    """Answer with a text and a picture."""
    return [Text("a dot"), Image.of(b"\x89PNG", "image/png")]


@server.tool
async def count(to: int, ctx: Context, heard: str | None = None) -> str:
    """Report progress, and wait until there is the file that says that it was heard."""
    for number in range(1, to + 1):
        await ctx.progress(number, to, f"at {number}")
    if heard is not None:
        await until(Path(heard).exists, math.inf)
    return f"counted to {to}"


@server.tool
async def talk(ctx: Context) -> str:
    """Log something."""
    await ctx.info("talking")
    await ctx.error({"nothing": "wrong"}, logger="talk")
    return "talked"


@server.tool
async def fail() -> str:
    """Raise a `Failure`."""
    raise Failure("this was to be expected", data={"why": "it always fails"})


@server.tool
async def crash() -> str:
    """Raise an unexpected exception."""
    raise RuntimeError("the password is s3cret")


@server.tool
async def hold(file: str) -> str:
    """Work until there is a file."""
    await until(Path(file).exists, math.inf)
    return "held"


@server.tool
def shout(text: str) -> str:
    """Say it louder, in a thread."""
    print(f"shouting {text}")
    return text.upper()


@server.tool
async def region(where: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that stands in a header too."""
    return f"in {where}"


@server.tool
async def echo(text: str) -> Result:
    """Say the same, with metadata."""
    return Result(text, meta={"length": len(text)})


@server.tool
async def whoami(ctx: Context) -> str:
    """Tell who is calling."""
    name = "nobody" if ctx.client is None else ctx.client.name
    return f"{name} {sorted(ctx.capabilities)}"


@server.tool
async def grow(ctx: Context) -> str:
    """Change what there is, and what it holds."""
    server.add_tool(_new, name="new")
    server.remove_tool("new")
    server.notify_resource_updated("note://first")
    return "grown"


async def _new() -> str:
    return "new"


@server.resource("note://first", mime_type="text/markdown", title="First")
async def first() -> str:
    """The first note."""
    return "# First"


@server.resource("note://raw")
async def raw() -> bytes:
    """Some bytes."""
    return b"\x00\x01"


@server.resource("note://{name}/{page}")
async def note(name: str, page: int) -> dict[str, str | int]:
    """A page of a note."""
    return {"name": name, "page": page}


@server.resource("blob://{name}")
async def blob(name: str) -> BlobContents:
    """A named blob."""
    return BlobContents(f"blob://{name}", "YQ==", "application/octet-stream")


@server.prompt(title="Greet someone")
async def greet(name: str, tone: Literal["warm", "wry"] = "warm") -> list[PromptMessage]:
    """Greet someone.

    Args:
        name: Whom.
    """
    return [
        PromptMessage("user", Text(f"Greet {name}, {tone}.")),
        PromptMessage("assistant", Text("With pleasure.")),
    ]


@server.completion("greet", "name")
async def names(value: str) -> list[str]:
    """Names that begin so."""
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]


@server.completion("note://{name}/{page}", "page")
async def pages(value: str, others: Mapping[str, str]) -> list[str]:
    """Pages of a note."""
    return [f"{value}{digit}" for digit in range(3)] if others.get("name") == "first" else []


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        asyncio.run(server.stdio())
    else:
        uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=20)
