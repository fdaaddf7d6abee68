"""A server whose functions are not run again, and a record of what they did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pydantic import BaseModel, Field, field_validator

from antiphon import Context, Elicit, InputRequired, Server
from antiphon.errors import InvalidParams
from tests.asking.driving import Able
from tests.support.polling import forever
from tests.support.speakers import Bare, Speaker

SECRET = "a secret of these tests"


class Name(BaseModel):
    name: str


class Count(BaseModel):
    count: int = Field(ge=1, le=9)


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _check(cls, value: int) -> int:
        if value % 2:
            raise ValueError("the number must be even")
        return value


class Recorded:
    """A server, and how often each of its functions began and cleaned up."""

    name = "recorded"

    def __init__(self, **options: Any) -> None:
        self.began: Counter[str] = Counter()
        self.unwound: Counter[str] = Counter()
        self.release = asyncio.Event()
        self.server = Server(self.name, **{"secrets": [SECRET], **options})
        self._register(self.server)

    def _register(self, server: Server) -> None:
        raise NotImplementedError


class Tasks(Recorded):
    """A server whose tasks wait in their process."""

    name = "held-tasks"

    def _register(self, server: Server) -> None:
        def tool(**options: Any) -> Any:
            return server.tool(**{"replay": False, "task": "optional", "poll_interval": 0.05, **options})

        @tool()
        async def greet(ctx: Context) -> str:
            self.began["greet"] += 1
            try:
                return f"Hello, {(await ctx.elicit('Name?', Name, key='name')).name}!"
            finally:
                self.unwound["greet"] += 1

        @tool()
        def in_a_thread(ctx: Context) -> str:
            self.began["in_a_thread"] += 1
            try:
                return f"Hello, {ctx.wait(ctx.elicit('Name?', Name, key='name')).name}!"
            finally:
                self.unwound["in_a_thread"] += 1

        @tool()
        async def emits(ctx: Context) -> AsyncIterator[str]:
            self.began["emits"] += 1
            yield "one"
            yield (await ctx.elicit("Name?", Name, key="name")).name
            yield (await ctx.elicit("Again?", Name, key="again")).name

        @tool()
        async def at_once(ctx: Context) -> str:
            self.began["at_once"] += 1
            names = await asyncio.gather(
                *(ctx.elicit(f"{key}?", Name, key=key) for key in ("one", "two", "three"))
            )
            return " ".join(name.name for name in names)

        @tool()
        async def counted(ctx: Context) -> str:
            self.began["counted"] += 1
            answer = await ctx.elicit("Which?", Even, key="even")
            return f"{answer.number}"

        @tool()
        async def withdraws(ctx: Context) -> str:
            self.began["withdraws"] += 1
            asking = asyncio.ensure_future(ctx.elicit("Name?", Name, key="name"))
            await self.release.wait()
            asking.cancel()
            return f"Hello, {(await ctx.elicit('Other?', Name, key='other')).name}!"

        @tool(timeout=100.0)
        async def limited(ctx: Context) -> str:
            name = (await ctx.elicit("Name?", Name, key="name")).name
            if name == "slow":
                self.began["slow"] += 1
                await forever()
            return name

        @tool(answer_within=5.0)
        async def answers_or_asks(ctx: Context, asks: bool = True) -> str:
            self.began["answers_or_asks"] += 1
            return (await ctx.elicit("Name?", Name, key="name")).name if asks else "at once"

        @tool()
        async def plain(word: str = "plain") -> str:
            return word

        @tool()
        async def sleeps(ctx: Context) -> str:
            self.began["sleeps"] += 1
            await ctx.sleep(3600)
            self.began["woken"] += 1
            return "slept"

        @tool()
        async def asks_others(ctx: Context) -> str:
            await ctx.elicit("Really?", Name, to="boss")
            return "never"


class Held(Recorded):
    """A server whose calls wait in their process."""

    name = "held"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register_replayed(replay=True)

    def register_replayed(self, *, replay: bool) -> None:
        """Register a tool that is run again, or not."""

        @self.server.tool(replay=replay)
        async def replayed(ctx: Context) -> str:
            ctx.uuid()  # so that there is something to carry
            return f"Hello, {(await ctx.elicit('Name?', Name, key='name')).name}!"

    def _register(self, server: Server) -> None:
        @server.tool(replay=False)
        async def greet(ctx: Context, greeting: str = "Hello") -> str:
            self.began["greet"] += 1
            try:
                return f"{greeting}, {(await ctx.elicit('Name?', Name, key='name')).name}!"
            finally:
                self.unwound["greet"] += 1

        @server.tool(replay=False)
        async def other(ctx: Context, greeting: str = "Hello") -> str:
            return f"{greeting}, {(await ctx.elicit('Name?', Name, key='name')).name}!"

        @server.tool(replay=False)
        async def two_in_a_row(ctx: Context) -> str:
            self.began["two_in_a_row"] += 1
            first = await ctx.elicit("First?", Name, key="first")
            await ctx.progress(1, 2, "half")
            return f"{first.name} {(await ctx.elicit('Second?', Name, key='second')).name}"

        @server.tool(replay=False)
        async def at_once(ctx: Context) -> str:
            self.began["at_once"] += 1
            name, said, roots = await asyncio.gather(
                ctx.elicit("Name?", Name, key="name"),
                ctx.sample("Say something", key="said"),
                ctx.roots(key="roots"),
            )
            return f"{name.name}: {said.text} in {roots[0].uri}"

        @server.tool(replay=False)
        async def counted(ctx: Context) -> int:
            self.began["counted"] += 1
            return (await ctx.elicit("How many?", Count, key="count")).count

        @server.tool(replay=False)
        def in_a_thread(ctx: Context) -> str:
            self.began["in_a_thread"] += 1
            try:
                return f"Hello, {ctx.wait(ctx.elicit('Name?', Name, key='name')).name}!"
            finally:
                self.unwound["in_a_thread"] += 1

        @server.tool
        def plain_in_a_thread() -> str:
            return "plain"

        @server.tool(replay=False)
        async def emits(ctx: Context) -> AsyncIterator[str]:
            self.began["emits"] += 1
            yield "one"
            yield "two"
            name = (await ctx.elicit("Name?", Name, key="name")).name
            yield name

        @server.tool(replay=False)
        async def emits_around(ctx: Context) -> AsyncIterator[str]:
            self.began["emits_around"] += 1
            yield "one"
            await ctx.elicit("Name?", Name, key="name")
            yield "two"
            yield "three"
            await ctx.elicit("Again?", Name, key="again")

        @server.tool(replay=False)
        def emits_in_a_thread(ctx: Context) -> Iterator[str]:
            self.began["emits_in_a_thread"] += 1
            yield "one"
            yield ctx.wait(ctx.elicit("Name?", Name, key="name")).name

        @server.tool(replay=False)
        async def slow(ctx: Context) -> str:
            self.began["slow"] += 1
            name = (await ctx.elicit("Name?", Name, key="name")).name
            self.began["slow answered"] += 1
            try:
                await self.release.wait()
            finally:
                self.unwound["slow"] += 1
            return name

        @server.tool(replay=False)
        async def gives_up(ctx: Context) -> str:
            self.began["gives_up"] += 1
            asking = asyncio.ensure_future(ctx.elicit("Name?", Name, key="name"))
            await self.release.wait()
            asking.cancel()
            return "nobody"

        @server.tool(replay=False)
        async def for_ever(ctx: Context) -> str:
            self.began["for_ever"] += 1
            while (await ctx.elicit("More?", Name, key="more")).name != "enough":
                self.began["rounds"] += 1
            return "enough"

        @server.tool(replay=False)
        async def explicit(ctx: Context) -> str | InputRequired:
            self.began["explicit"] += 1
            count = 0 if ctx.state is None else ctx.state
            if count == 2:
                return f"{count} rounds, last {ctx.input_responses['n']['content']['x']}"
            schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
            return InputRequired({"n": Elicit("x?", schema)}, state=count + 1)

        @server.tool(replay=False)
        async def stubborn(ctx: Context) -> str:
            for _ in range(3):
                try:
                    await ctx.elicit("Name?", Name)
                except asyncio.CancelledError:
                    self.unwound["stubborn"] += 1
            return "stubborn"

        @server.tool(replay=False)
        async def quick(ctx: Context) -> str:
            return "quick"

        @server.tool(replay=False)
        async def quick_emits(ctx: Context) -> AsyncIterator[str]:
            yield "quick"

        @server.tool(replay=False)
        async def refuses(ctx: Context) -> str:
            raise InvalidParams("no")

        @server.tool(replay=False)
        async def refuses_later(ctx: Context) -> str:
            await ctx.elicit("Name?", Name, key="name")
            raise InvalidParams("no", data={"why": "tests"})

        @server.tool(replay=False)
        async def reports(ctx: Context) -> AsyncIterator[str]:
            self.began["reports"] += 1
            yield "one"
            yield (await ctx.elicit("Name?", Name, key="name")).name
            await ctx.progress(1, 2, "half")
            self.began["reported"] += 1
            await self.release.wait()
            yield "three"

        @server.tool(replay=False)
        async def large(ctx: Context) -> str:
            await ctx.elicit("Name?", Name, key="name")
            return "x" * 300_000

        @server.tool(replay=False)
        async def raises(ctx: Context) -> str:
            await ctx.elicit("Name?", Name, key="name")
            raise RuntimeError("a defect")

        @server.prompt(replay=False)
        async def story(hero: str, ctx: Context) -> str:
            self.began["story"] += 1
            return f"{hero} against {(await ctx.elicit('Villain?', Name, key='villain')).name}"

        @server.resource("story://{hero}", replay=False)
        async def told(hero: str, ctx: Context) -> str:
            self.began["told"] += 1
            return f"{hero} against {(await ctx.elicit('Villain?', Name, key='villain')).name}"


VERSIONS: tuple[type[Speaker], ...] = (Able, Bare)
"""Clients of the versions in which a question ends the request: 2026-07-28 and the draft."""
