"""A server with tools that emit, and a record of their side effects."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from antiphon import Context, Failure, InvalidParams, Limits, Principal, Server
from antiphon.store.contract import Store
from tests.promises.tooling import store_of
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.serving import Address, serving

LATE_SECONDS = 20.0
"""After how long `gated_or_late` becomes a task: a test moves the time."""


class Name(BaseModel):
    name: str


def authenticate(headers: Mapping[str, str]) -> Principal:
    """Trust the name in the header."""
    return Principal(headers.get("x-who", "anyone"))


class Studio:
    """A server, its store, and a limit on how far its tools may go."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.forget()
        options.setdefault("limits", Limits(lease_seconds=LONG_LEASE_SECONDS, drain_timeout=0.2))
        self.server = Server(
            "studio", store=store, secrets=["a secret of the studio"], authenticate=authenticate, **options
        )
        self._register(self.server)
        self._register_askers(self.server)

    def forget(self) -> None:
        """Reset all records and limits, and release tools that wait."""
        if hasattr(self, "gate"):
            self.allow(1000)
        self.ran: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.gate = asyncio.Semaphore(0)
        """Released once for each segment that a gated tool may emit."""
        self.thread_gate = threading.Semaphore(0)
        """The same for tools that are not `async`."""

    def allow(self, segments: int) -> None:
        """Allow gated tools to emit this many more segments."""
        for _ in range(segments):
            self.gate.release()
            self.thread_gate.release()

    def did(self, what: str) -> str:
        """Record a side effect."""
        self.ran[what] += 1
        return what

    def _register(self, server: Server) -> None:
        def tool(**options: Any) -> Any:
            return server.tool(**{"task": "optional", "poll_interval": 0.05, **options})

        @tool()
        async def count(n: int) -> AsyncIterator[str]:
            """Emits as fast as it can."""
            self.did("count")
            for number in range(1, n + 1):
                yield str(number)

        @tool()
        async def bulk(size: int, n: int) -> AsyncIterator[str]:
            """Emits much, and counts what it could get rid of."""
            for number in range(1, n + 1):
                self.did("bulk")
                yield f"{number} ".ljust(size, "x")

        async def gated(n: int, fail: str = "") -> AsyncIterator[str]:
            """Emits when it may, and fails in the end if it is told to."""
            self.did("gated")
            try:
                for number in range(1, n + 1):
                    await self.gate.acquire()
                    yield str(number)
                if fail == "Failure":
                    raise Failure("It cannot be done.", data={"why": "wrong"})
                if fail == "InvalidParams":
                    raise InvalidParams("Not like that.")
                if fail:
                    raise ZeroDivisionError("a secret of the implementation")
            finally:
                self.ended["gated"] += 1

        tool()(gated)
        tool(name="gated_or_late", answer_within=LATE_SECONDS)(gated)
        tool(name="gated_required", task="required")(gated)
        server.tool(name="gated_forbidden")(gated)

        @tool()
        def threaded(n: int) -> Generator[str, None, int]:
            """Emits from a thread, when it may, and returns how many there were."""
            self.did("threaded")
            try:
                for number in range(1, n + 1):
                    self.thread_gate.acquire()
                    yield str(number)
                return n
            finally:
                self.ended["threaded"] += 1

        @tool(answer_within=30.0)
        async def quick(word: str = "quick") -> str:
            """Emits nothing, and is done at once."""
            return word

        @tool(answer_within=0.2)
        async def slow(ctx: Context) -> str:
            """Emits, but does not say so beforehand."""
            await ctx.emit("1")
            await self.gate.acquire()
            await ctx.emit("2")
            return "slow"

        @tool()
        async def plain(word: str = "plain") -> str:
            """Emits nothing, and says nothing of how long it takes."""
            return word

        @tool(answer_within=float("inf"), streams=True)
        async def promising(ctx: Context) -> str:
            """Emits, becomes a task when it likes, and goes on."""
            await ctx.emit("1")
            await ctx.emit("2")
            await ctx.promise()
            await ctx.emit("3")
            await self.gate.acquire()
            await ctx.emit("4")
            return "5"

    def _register_askers(self, server: Server) -> None:
        @server.tool(task="optional", poll_interval=0.05)
        async def ask(ctx: Context) -> AsyncIterator[str]:
            """Emits, asks, emits, asks, and emits."""
            self.did("ask")
            yield "1"
            yield "2"
            first = await ctx.elicit("First?", Name, key="first")
            yield f"3 {first.name}"
            await ctx.step(self.did, "step")
            second = await ctx.elicit("Second?", Name, key="second")
            yield f"4 {second.name}"

        @server.tool(task="optional", poll_interval=0.05)
        async def stubborn(ctx: Context) -> str:
            """Is stopped at a question, and wants to emit all the same."""
            await ctx.emit("1")
            try:
                name = await ctx.elicit("First?", Name, key="first")
            except asyncio.CancelledError:
                await ctx.emit("too late")
                raise
            return f"2 {name.name}"

        @server.tool(task="optional", poll_interval=0.05)
        def ask_in_thread(ctx: Context) -> Generator[str, None, None]:
            """The same, from a thread."""
            yield "1"
            yield "2"
            first = ctx.wait(ctx.elicit("First?", Name, key="first"))
            yield f"3 {first.name}"
            second = ctx.wait(ctx.elicit("Second?", Name, key="second"))
            ctx.wait(ctx.emit(f"4 {second.name}"))


@asynccontextmanager
async def at_work(kind: str, folder: Path, **options: Any) -> AsyncIterator[tuple[Studio, Address]]:
    """Serve a `Studio`."""
    studio = Studio(store_of(kind, folder), **options)
    async with serving(studio.server) as address:
        try:
            yield studio, address
        finally:
            studio.allow(1000)
