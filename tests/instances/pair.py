"""Two instances of one server on one store: one serves and runs tasks, the other only serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pydantic import BaseModel

from antiphon import Artifact, Context, Limits, Server
from tests.support.polling import until
from tests.support.serving import Address, serving

SECRET = "a secret that instances share"


class Name(BaseModel):
    name: str


class Instance:
    """A server, its port, and a record of when its tools did something."""

    def __init__(self, store: str, *, works: bool) -> None:
        self.moments: dict[str, float] = {}
        self.server = Server(
            "pair", store=store, secrets=[SECRET], limits=Limits(lease_seconds=5.0, drain_timeout=0.5)
        )
        self.server.configure(run_tasks=works)
        self.address: Address
        self._register(self.server)

    @property
    def port(self) -> int:
        """The port of the server."""
        return self.address.port

    def note(self, what: str) -> None:
        """Record when something first happened."""
        self.moments.setdefault(what, time.monotonic())

    async def noted(self, what: str, within: float = 30.0) -> float:
        """When something happened, once it has."""
        await until(lambda: what in self.moments, within)
        return self.moments[what]

    def _register(self, server: Server) -> None:
        @server.tool(task="optional", poll_interval=0.05)
        async def ask(word: str, ctx: Context) -> str:
            name = (await ctx.elicit("Who?", Name, key="who")).name
            self.note(f"answered {word}")
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
            self.note(f"began {word}")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.note(f"stopped {word}")
                raise
            return word

        @server.tool(task="optional", poll_interval=0.05)
        async def drip(count: int, ctx: Context) -> AsyncIterator[str]:
            for number in range(count):
                await asyncio.sleep(0.05)
                self.note(f"drop {number}")
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
