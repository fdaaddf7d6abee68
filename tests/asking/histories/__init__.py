"""The server whose histories are kept beside it, as `antiphon tasks export` wrote them."""

from __future__ import annotations

import os
from pathlib import Path

from antiphon import Context, Server

HERE = Path(__file__).parent
EFFECTS = Path(os.environ.get("EFFECTS", os.devnull))

server = Server("shop")


def reserve(item: str, count: int) -> str:
    """Reserve something."""
    return _did(f"reserved {count} of {item}")


def charge(amount: float) -> str:
    """Take money."""
    return _did(f"charged {amount:g}")


def _did(what: str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{what}\n")
    return what


@server.tool(task="required", task_ttl=None)
async def order(item: str, ctx: Context) -> str:
    """Order something."""
    count = await ctx.elicit("How many?", int, key="count")
    reserved = await ctx.step(reserve, item, count)
    address = await ctx.elicit("Where to?", str, key="address")
    charged = await ctx.step(charge, 2.5 * count)
    return f"{reserved}, {charged}, sent to {address} in {ctx.now().year}"
