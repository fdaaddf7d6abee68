"""A server with tools of many kinds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from antiphon import Context, Failure, Image, Principal, Result, Server, Text
from tests.support.polling import until

print("printed while the file is loaded")

server = Server("served")


class Point(BaseModel):
    x: int
    y: int = 0


@server.tool
async def greet(name: str, times: int = 1) -> str:
    """Greet someone.

    As often as you like.
    """
    return " ".join([f"Hello, {name}!"] * times)


@server.tool
async def types(
    text: str,
    whole: int = 0,
    number: float = 0.0,
    flag: bool = False,
    point: Point | None = None,
    tags: list[str] | None = None,
    maybe: str | None = None,
    unit: Literal["m", "ft"] = "m",
    anything: Any = None,
) -> dict[str, Any]:
    """Return the arguments."""
    return {
        "text": text,
        "whole": whole,
        "number": number,
        "flag": flag,
        "point": point.model_dump() if point else None,
        "tags": tags,
        "maybe": maybe,
        "unit": unit,
        "anything": anything,
    }


@server.tool
async def fail(why: str) -> str:
    """Fail."""
    raise Failure(why, data={"why": why})


@server.tool
async def work(steps: int, ctx: Context) -> Result:
    """Report progress and log."""
    for step in range(1, steps + 1):
        await ctx.progress(step, steps, f"step {step}")
    await ctx.info("all steps done")
    return Result("# Done\n\nAll **steps**.", data={"steps": steps}, meta={"took": "no time"})


@server.tool
async def picture() -> list[Text | Image]:
    """Return an image."""
    return [Text("Look:"), Image.of(b"\x89PNG" * 25, "image/png")]


@server.tool
async def slow(gate: str = "") -> str:
    """Wait for a file."""
    print("slow has begun", flush=True)
    if gate:
        await until(Path(gate).exists, within=3600)
    return "done at last"


@server.tool
async def process() -> int:
    """Return the ID of the process."""
    return os.getpid()


@server.tool
async def caller(ctx: Context) -> str:
    """Return the ID of the caller."""
    return ctx.principal.id


def by_header(headers: Any) -> Principal | None:
    """Authenticate the caller by a header."""
    name = headers.get("x-name") or headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name) if name else None


guarded = Server("guarded", authenticate=by_header)
guarded.add_tool(caller)
