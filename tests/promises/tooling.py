"""A server with tools that run as tasks, and a record of their side effects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from antiphon import Context, Failure, InternalError, InvalidParams, Limits, Principal, Server, wall_clock
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.asking.driving import EVERYTHING
from tests.promises.speaking import Patient
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.serving import Address, serving
from tests.support.speakers import Bare, Session, Speaker


class Ahead:
    """The time of day, which a test moves ahead. Leases go by another clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wall_clock, "ahead", 0.0)  # as it is again after the test

    def __call__(self, **length: float) -> None:
        wall_clock.ahead += timedelta(**length).total_seconds()


STORES = ("memory", "sqlite")
DIALECTS = ("draft", "2025-11-25", "2026-07-28")


class Name(BaseModel):
    name: str


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number


def authenticate(headers: Mapping[str, str]) -> Principal:
    """Trust the name in the header."""
    return Principal(headers.get("x-who", "anyone"))


class Workshop:
    """A server, its store, and the side effects of its tools."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.ran: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()
        self.running = self.most = 0
        self.gate = asyncio.Event()
        options.setdefault("limits", Limits(lease_seconds=LONG_LEASE_SECONDS, drain_timeout=0.2))
        self.server = Server(
            "workshop",
            store=store,
            secrets=["a secret of the workshop"],
            authenticate=authenticate,
            **options,
        )
        self._register(self.server)

    def did(self, what: str) -> str:
        """Record a side effect."""
        self.ran[what] += 1
        return what.upper()

    async def until_open(self, tool: str) -> None:
        """Wait until the gate opens; record cancellations, and how many have waited at once."""
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped[tool] += 1
            raise
        finally:
            self.running -= 1

    def _register(self, server: Server) -> None:
        @server.tool
        async def plain(word: str = "plain") -> str:
            """Gives no promises."""
            return word

        @server.tool(task="required", poll_interval=0.05)
        async def long() -> str:
            """Gives only promises."""
            self.did("long")
            await self.until_open("long")
            return "long"

        @server.tool(task="optional", poll_interval=0.05)
        async def add(a: int, b: int) -> int:
            """Gives structured content."""
            return a + b

        @server.tool(task="optional", poll_interval=0.05)
        async def fail() -> str:
            """Fails as an author foresaw."""
            raise Failure("It cannot be done.", data={"why": "wrong"})

        @server.tool(task="optional", poll_interval=0.05)
        async def fault(internal: bool = False) -> str:
            """Ends with a JSON-RPC error."""
            if internal:
                raise InternalError("It broke.", data={"where": "inside"})
            raise InvalidParams("Not like that.")

        @server.tool(task="optional", poll_interval=0.05)
        async def crash() -> str:
            """Ends with an exception that nobody foresaw."""
            raise ZeroDivisionError("a secret of the implementation")

        @server.tool(task="optional", poll_interval=0.05)
        async def pick(ctx: Context) -> str:
            """Asks for a number, and accepts fewer numbers than its form."""
            return str((await ctx.elicit("An even number?", Even, key="number")).number)

        @server.tool(task="optional", poll_interval=0.05)
        async def ask(ctx: Context) -> str:
            """Asks two things at once, and then a third."""
            await ctx.step(self.did, "began")
            first, second = await asyncio.gather(
                ctx.elicit("First?", Name, key="first"), ctx.elicit("Second?", Name, key="second")
            )
            await ctx.step(self.did, "went on")
            third = await ctx.elicit("Third?", Name, key="third")
            return f"{first.name} {second.name} {third.name}"


def store_of(kind: str, folder: Path) -> Store:
    """Return a new store of a kind."""
    return open_store("memory:" if kind == "memory" else f"sqlite:///{folder}/tasks.db")


async def speaker(dialect: str, port: int, **options: Any) -> Speaker:
    """Return a client of a dialect that accepts tasks and can answer every kind of question."""
    if dialect == "draft":
        return Bare(port, **options)
    if dialect == "2026-07-28":
        return Patient(port, **options)
    session = Session(port, **options)
    await session.open(capabilities=EVERYTHING)
    return session


@asynccontextmanager
async def at_work(kind: str, folder: Path, **options: Any) -> AsyncIterator[tuple[Workshop, Address]]:
    """Serve a `Workshop`."""
    workshop = Workshop(store_of(kind, folder), **options)
    async with serving(workshop.server) as address:
        try:
            yield workshop, address
        finally:
            workshop.gate.set()
