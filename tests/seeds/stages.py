"""Servers whose tools do what a seed prints, where `examples/seeds.py` does something else.

The tools have the same names, so each stage is a server of its own: `stages.py:failing`, for example. What a
tool waits for is told by a tool of its own, `go_on`; nothing waits for a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic import BaseModel

from antiphon import Context, Failure, Limits, Server

__all__ = [
    "asking",
    "asking_for_more",
    "asking_twice",
    "failing",
    "incremental",
    "partial",
    "pending",
    "quick",
]

CITY = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
ACTIVITIES = "Suggested activities:\n- Visit Central Park\n- Explore the Metropolitan Museum of Art"
VIDEO = {
    "type": "video",
    "text": "Here is a short video overview of New York City attractions.",
    "url": "https://example.com/nyc_overview.mp4",
}


class Login(BaseModel):
    """Who someone is elsewhere."""

    name: str


# 000: the weather cannot be had.
failing = Server("failing", store="memory:")


@failing.tool(name="get_weather", task="optional", poll_interval=5)
async def fail(city: str) -> str:
    """Fail."""
    raise Failure(f"Error: Unable to retrieve weather data for {city}.")


# 000, option 1: the weather is only for those who say who they are.
asking = Server("asking", store="memory:")


@asking.tool(name="get_weather")
async def ask(city: str, ctx: Context) -> str:
    """Ask for a name."""
    await ctx.elicit("Please provide your GitHub username", Login, key="github_login")
    return f"Current weather in {city}:\nTemperature: 72° F\nConditions: Partly cloudy"


# 000, the answer of a task: a form with the properties that are printed.
asking_for_more = Server("asking_for_more", store="memory:")


class Properties(BaseModel):
    """What is printed in place of an answer."""

    propertyName: str
    anotherProperty: int


@asking_for_more.tool(name="get_weather", task="optional", poll_interval=5)
async def ask_for_more(city: str, ctx: Context) -> str:
    """Ask for two values."""
    await ctx.elicit("Please fill this in", Properties)
    return f"Current weather in {city}:\nTemperature: 72° F\nConditions: Partly cloudy"


# 000, option 2, and the two requests of 002: a person and a model are asked at once.
asking_twice = Server("asking_twice", store="memory:")


@asking_twice.tool(name="get_weather")
async def ask_twice(city: str, ctx: Context) -> str:
    """Ask for a name and for a capital."""
    _, capital = await asyncio.gather(
        ctx.elicit("Please provide your GitHub username", Login, key="github_login"),
        ctx.sample(
            "What is the capital of France?",
            max_tokens=100,
            system="You are a helpful assistant.",
            key="capital_of_france",
            modelPreferences={
                "hints": [{"name": "claude-3-sonnet"}],
                "intelligencePriority": 0.8,
                "speedPriority": 0.5,
            },
        ),
    )
    assert capital.text == "The capital of France is Paris."
    return f"Current weather in {city}:\nTemperature: 72° F\nConditions: Partly cloudy"


# 004, case 1: the result is there at once, however busy the machine is.
quick = Server("quick", store="memory:")


@quick.tool(name="get_weather", task="optional", poll_interval=5, answer_within=60)
async def give(city: str) -> AsyncIterator[str | dict[str, str]]:
    """Give all three parts."""
    yield CITY
    yield ACTIVITIES
    yield VIDEO


# 004, case 2: there is no result yet, and nothing says that there will be a part of it.
pending = Server("pending", store="memory:", limits=Limits(drain_timeout=0.2))


@pending.tool(name="get_weather", task="optional", poll_interval=5)
async def wait(city: str) -> str:
    """Wait for ever."""
    return await asyncio.Future[str]()


# 004, case 3: two segments at once, and the last one later.
incremental = Server("incremental", store="memory:", limits=Limits(drain_timeout=0.2))
told = asyncio.Event()


@incremental.tool(name="get_weather", task="optional", poll_interval=5)
async def stream(city: str) -> AsyncIterator[str | dict[str, str]]:
    """Give two parts, wait until it is told, and give the last one."""
    yield CITY
    yield ACTIVITIES
    await told.wait()
    told.clear()
    yield VIDEO


# 004, the other two shapes: the task with its first segment, and an event with the third one.
partial = Server("partial", store="memory:", limits=Limits(drain_timeout=0.2))


@partial.tool(name="get_weather", task="optional", poll_interval=5)
async def stream_on(city: str) -> AsyncIterator[str]:
    """Give one part, wait until it is told, give two more, and wait for ever."""
    yield "Initial result segment"
    await told.wait()
    told.clear()
    yield "A segment between them"
    yield "Additional segment"
    await asyncio.Future[str]()


@partial.tool
@incremental.tool
async def go_on() -> str:
    """Tell the other tool to go on."""
    told.set()
    return "told"
