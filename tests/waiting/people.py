"""People who ask and answer: a server that asks finance, and clients of its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from antiphon import BearerTokens, Client, Context, Limits, Principal, Server
from antiphon.client import InboxChanges, InboxItem
from antiphon.store.contract import Store
from tests.support.polling import until
from tests.support.serving import serving

VERSIONS = pytest.mark.parametrize("version", ["2026-07-28", "DRAFT-2026-v1"])
WAYS = pytest.mark.parametrize("http", [True, False], ids=["http", "memory"])
PEOPLE = {
    "a-token": Principal("ada"),
    "b-token": Principal("bob", scopes=frozenset({"finance"})),
    "e-token": Principal("eve", claims={"roles": ["finance"]}),
    "m-token": Principal("max"),
}


def expenses(store: Store | None = None, *, limits: Limits | None = None, **options: Any) -> Server:
    """A server with a tool that asks finance, with the options of `elicit`."""
    kept: Any = "memory:" if store is None else store
    server = Server("shop", store=kept, authenticate=BearerTokens(PEOPLE), limits=limits)
    ask_finance(server, **options)
    return server


def ask_finance(server: Server, **options: Any) -> None:
    """Add a tool that asks finance."""

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context, amount: float) -> str:
        approved = await ctx.elicit(f"Approve {amount:g} €?", bool, to="finance", key="approve", **options)
        return f"{approved} by {', '.join(each.id for each in ctx.approved_by('approve'))}"


@asynccontextmanager
async def people(
    server: Server, *tokens: str, version: str = "2026-07-28", http: bool = True
) -> AsyncIterator[list[Client]]:
    """Clients of some of the people, over HTTP or in memory."""
    async with serving(server) as address, AsyncExitStack() as stack, asyncio.timeout(60):
        clients = [
            Client(address.url, auth=token, protocol=version)
            if http
            else Client(server, principal=PEOPLE[token], protocol=version)
            for token in tokens
        ]
        yield [await stack.enter_async_context(client) for client in clients]


async def asked(client: Client, count: int = 1) -> list[InboxItem]:
    """Wait until somebody has so many questions to answer; return them."""
    found: list[InboxItem] = []

    async def all_asked() -> bool:
        found[:] = await client.inbox()
        return len(found) == count

    await until(all_asked)
    return found


async def read(changes: InboxChanges, count: int) -> list[tuple[str, str]]:
    """Read so many changes: the kind of each, and the question."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        async for change in changes:
            found.append((change.kind, change.item.message))
            if len(found) == count:
                break
    return found
