"""The tools that the seeds of this project describe, each answering as its seed shows.

antiphon run examples/seeds.py
antiphon call http://127.0.0.1:8000/mcp get_weather city="New York"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from antiphon import Failure, Server, ToolAnnotations

server = Server(
    "seeds",
    version="0.1.0",
    title="Seeds",
    instructions="Tools that show each way a call can end.",
)


# Seed 000: an answer that is complete, and one that is a failure.


@dataclass(frozen=True, slots=True)
class Weather:
    """The weather in one place; the temperature is in degrees Fahrenheit."""

    temperature: int
    conditions: str


WEATHER = {
    "New York": Weather(72, "Partly cloudy"),
    "London": Weather(59, "Light rain"),
    "Oslo": Weather(41, "Clear"),
    "San Francisco": Weather(63, "Fog"),
    "Singapore": Weather(88, "Thunderstorms"),
}


@server.tool(title="Current weather", annotations=ToolAnnotations(read_only_hint=True))
async def get_weather(city: Annotated[str, Field(description="A city, such as New York.")]) -> str:
    """Get the current weather in a city."""
    weather = WEATHER.get(city)
    if weather is None:
        raise Failure(f"Error: Unable to retrieve weather data for {city}.")
    return (
        f"Current weather in {city}:\nTemperature: {weather.temperature}° F\nConditions: {weather.conditions}"
    )
