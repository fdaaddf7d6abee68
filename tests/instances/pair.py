"""Two instances of one server on one store: one serves and runs tasks, the other only serves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pydantic import BaseModel

from antiphon import Artifact, Context, Limits, Server
from antiphon.store import open_store
from antiphon.store.contract import Store, Watch
from antiphon.store.postgres import PostgresStore
from tests.support.polling import forever, until
from tests.support.serving import Address, serving

SECRET = "a secret that instances share"


class Name(BaseModel):
    name: str


class _Notified:
    """A watch whose `wait` ends only when it fires."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def wait(self, timeout: float) -> bool:
        return await self._watch.wait(math.inf if timeout else 0)


def open_notified(place: str) -> Store:
    """Return a store in which nothing is found by looking again: a lost notification is never made up for.

    In SQLite, the notifications of other processes come from the poll of the file.
    """
    store = open_store(place) if place.startswith("sqlite") else PostgresStore(place, poll_interval=1e6)
    for name in ("watch", "watch_ready", "watch_all"):
        setattr(store, name, _without_timeout(getattr(store, name)))
    return store


def _without_timeout(method: Any) -> Any:
    @asynccontextmanager
    async def watch(*arguments: Any) -> AsyncIterator[Watch]:
        async with method(*arguments) as found:
            yield _Notified(found)

    return watch


class Instance:
    """A server, its port, and a record of what its tools did."""

    def __init__(self, store: str, *, works: bool) -> None:
        self.events: set[str] = set()
        self.drops = asyncio.Semaphore(0)
        """How many more drops the tool `drip` may yield."""
        self.server = Server(
            "pair",
            store=open_notified(store),
            artifacts=store,
            secrets=[SECRET],
            limits=Limits(lease_seconds=60.0, drain_timeout=0.5),
        )
        self.server.configure(run_tasks=works)
        self.address: Address
        self._register(self.server)

    @property
    def port(self) -> int:
        """The port of the server."""
        return self.address.port

    async def noted(self, what: str) -> None:
        """Wait until something has happened."""
        await until(lambda: what in self.events)

    def _register(self, server: Server) -> None:
        @server.tool(task="optional", poll_interval=0.05)
        async def ask(word: str, ctx: Context) -> str:
            name = (await ctx.elicit("Who?", Name, key="who")).name
            self.events.add(f"answered {word}")
            return f"{word} {name}"

        @server.tool
        async def keep(text: str) -> Artifact[str]:
            return Artifact(text, type="note")

        @server.tool
        async def use(artifact_id: Artifact[str]) -> str:
            return artifact_id.value

        @server.tool
        async def held(ctx: Context) -> str:
            return f"held {(await ctx.elicit('Who?', Name, key='who')).name}"

        @server.tool(task="optional", poll_interval=0.05)
        async def endless(word: str) -> str:
            self.events.add(f"began {word}")
            try:
                await forever()
            except asyncio.CancelledError:
                self.events.add(f"stopped {word}")
                raise
            return word

        @server.tool(task="optional", poll_interval=0.05)
        async def drip(count: int, ctx: Context) -> AsyncIterator[str]:
            for number in range(count):
                await self.drops.acquire()
                yield f"drop {number}"

        @server.tool
        async def plain(word: str = "plain") -> str:
            return word

        @server.resource("note://one")
        async def one() -> str:
            return "one"

        @server.resource("note://two")
        async def two() -> str:
            return "two"


@asynccontextmanager
async def pair(store: str) -> AsyncIterator[tuple[Instance, Instance]]:
    """Both of them, at their addresses."""
    async with AsyncExitStack() as stack:
        instances: list[Any] = []
        for works in (True, False):
            instance = Instance(store, works=works)
            instance.address = await stack.enter_async_context(serving(instance.server))
            instances.append(instance)
        yield instances[0], instances[1]
