"""A shop whose tools ask people, and consoles that look at its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon import Context, Principal, Server
from antiphon.console.sources import StoreSource
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.console.support import RunningConsole
from tests.support.polling import until

__all__ = ["OWN", "PEOPLE", "asked", "shop", "store_source"]

OWN = "/api/inbox/stores/main"
"""The path of the questions of the store in `store_source`."""

PEOPLE = {
    "a-token": Principal("ada"),
    "b-token": Principal("bob", scopes=frozenset({"finance"})),
    "e-token": Principal("eve", scopes=frozenset({"finance"})),
    "m-token": Principal("max"),
}


def shop(store: Store | str, **options: Any) -> Server:
    """A server whose tools ask their callers, finance, and people by their ids."""
    server = Server("shop", store=store, **options)

    @server.tool(task="required", poll_interval=0.02)
    async def greet(ctx: Context) -> str:
        return f"Hello {await ctx.elicit('What is your name?', str, key='name')}!"

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context, amount: float, approvals: int = 1) -> str:
        approved = await ctx.elicit(
            f"Approve {amount:g} €?", bool, to="finance", key="approve", approvals=approvals, within=86400
        )
        return f"{all(approved)} by {', '.join(each.id for each in ctx.approved_by('approve'))}"

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        schema = {
            "type": "object",
            "properties": {
                "count": {"type": "integer", "title": "How many", "minimum": 1, "maximum": 9},
                "mail": {"type": "string", "format": "email", "title": "Address for the receipt"},
                "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            },
            "required": ["count", "mail"],
        }
        return str(await ctx.elicit("How many, and where to?", schema, key="order"))

    @server.tool(task="required", poll_interval=0.02, replay=False)
    async def hold(ctx: Context) -> str:
        return str(await ctx.elicit("Hold or go on?", str, key="hold"))

    @server.tool(task="required", poll_interval=0.02)
    async def sign(ctx: Context, url: str) -> str:
        await ctx.elicit("Sign the contract.", url=url, key="sign")
        return "signed"

    @server.tool(task="required", poll_interval=0.02)
    async def ask(ctx: Context, message: str, to: str, field: str, choice: str) -> str:
        schema = {
            "type": "object",
            "properties": {
                field: {"type": "string", "title": field, "description": message, "enum": [choice, "b"]}
            },
            "required": [field],
        }
        return str(await ctx.elicit(message, schema, to=to, key="ask"))

    return server


def store_source(folder: Path) -> StoreSource:
    """The store of a folder, as an operator looks at it. Several servers and consoles may use it."""
    return StoreSource("main", "tasks.db", open_store(store_url(folder)))


def store_url(folder: Path) -> str:
    """The address of the store of a folder."""
    return f"sqlite:///{folder}/tasks.db"


async def asked(console: RunningConsole, count: int = 1) -> list[Any]:
    """Wait until a console shows so many questions; return them."""
    found: list[Any] = []

    async def all_asked() -> bool:
        found[:] = (await console.get("/api/inbox"))["questions"]
        return len(found) == count

    await until(all_asked)
    return found
