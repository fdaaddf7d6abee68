"""The tools that the seeds of this project describe, each answering as its seed shows.

antiphon run examples/seeds.py
antiphon call http://127.0.0.1:8000/mcp get_weather city="New York"
antiphon call http://127.0.0.1:8000/mcp echo
antiphon call http://127.0.0.1:8000/mcp update_work_item workItemId=4522 'fields={"System.State": "Resolved"}'

With SEEDS_VERSION=new it is the next version of itself, for a rolling upgrade. With SEEDS_SHED=1 it hands
every call back to its caller after each step, as a server under load would.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from antiphon import (
    Artifact,
    CommandFailed,
    Context,
    Failure,
    InvalidParams,
    Result,
    Server,
    ToolAnnotations,
    shed_after,
)

NEW = os.environ.get("SEEDS_VERSION") == "new"
SHED = os.environ.get("SEEDS_SHED") == "1"

server = Server(
    "seeds",
    version="0.2.0" if NEW else "0.1.0",
    title="Seeds",
    instructions="Tools that show each way a call can end.",
    shed=shed_after(0) if SHED else None,
)


# Seed 000: an answer that is complete, a failure, and a promise. Seed 002: the same tool asks first.
# Seed 004: the same tool in segments, for a caller that takes them.


@dataclass(frozen=True, slots=True)
class Weather:
    """The weather in one place; the temperature is in degrees Fahrenheit."""

    temperature: int
    conditions: str


class Login(BaseModel):
    """Who someone is elsewhere."""

    name: str


STATIONS = {
    "New York": "KNYC",
    "London": "EGLL",
    "Oslo": "ENBL",
    "San Francisco": "KSFO",
    "Singapore": "WSSS",
}
WEATHER = {
    "KNYC": Weather(72, "Partly cloudy"),
    "EGLL": Weather(59, "Light rain"),
    "ENBL": Weather(41, "Clear"),
    "KSFO": Weather(63, "Fog"),
    "WSSS": Weather(88, "Thunderstorms"),
}
SIGHTS = {"New York": ("Visit Central Park", "Explore the Metropolitan Museum of Art")}


@server.tool(
    title="Current weather",
    annotations=ToolAnnotations(read_only_hint=True),
    task="optional",
    poll_interval=5,
)
async def get_weather(
    ctx: Context,
    city: Annotated[str, Field(description="A city, such as New York.")] = "",
    location: Annotated[str, Field(description="The same, for callers who are ready to be asked.")] = "",
) -> AsyncIterator[str | dict[str, str]]:
    """Get the current weather in a city."""
    if bool(city) == bool(location):
        raise Failure("Say where: give either a city or a location.")
    if city:
        weather = WEATHER[station_in(city)]
        degrees = f"{weather.temperature}°F" if ctx.streams else f"{weather.temperature}° F"
    else:
        station = await ctx.step(station_in, location)  # found once, and carried through the rounds
        await ctx.elicit("Please provide your GitHub username", Login, key="github_login")
        weather = WEATHER[station]
        degrees = f"{weather.temperature}°F"
    yield f"Current weather in {city or location}:\nTemperature: {degrees}\nConditions: {weather.conditions}"
    if ctx.streams and city in SIGHTS:
        yield "Suggested activities:\n" + "\n".join(f"- {activity}" for activity in SIGHTS[city])
        yield {  # a block of a type that the protocol does not have, as the seed prints it
            "type": "video",
            "text": "Here is a short video overview of New York City attractions.",
            "url": "https://example.com/nyc_overview.mp4",
        }


def station_in(place: str) -> str:
    """The weather station of a place."""
    if place not in STATIONS:
        raise Failure(f"Error: Unable to retrieve weather data for {place}.")
    return STATIONS[place]


@server.tool(task="optional", poll_interval=0.5)
async def research(topic: str, ctx: Context) -> AsyncIterator[str | Result]:
    """Look a topic up in several places, slowly enough to watch."""
    for place in PLACES:
        yield await ctx.step(look_up, place, topic)
    yield Result(data={"topic": topic, "places": len(PLACES)})


PLACES = ("an encyclopedia", "a library", "an archive", "the newspapers", "a museum")


async def look_up(place: str, topic: str) -> str:
    """What there is about a topic in one place."""
    await asyncio.sleep(0.4)
    return f"In {place}: {len(topic) * len(place)} mentions of {topic}."


# Seeds 001 and 002, the persistent workflow: a task that asks for what it was not given.


class Input(BaseModel):
    """What to echo."""

    input: str


@server.tool(task="optional", poll_interval=0.1)
async def echo(ctx: Context, input: str | None = None) -> str:
    """Say a string again; asks for it, if there is none."""
    if input is None:
        message = "Please provide the input string to echo back"
        input = (await ctx.elicit(message, Input, key="echo_input")).input
    return f"Echo: {input}"


# Seed 002, the work item: each rule asks for what it needs, and nothing is written before all is known.


class Resolution(BaseModel):
    """What rule 1 requires of an item that is set to Resolved."""

    resolution: Literal["Fixed", "Won't Fix", "Duplicate", "By Design"] = Field(
        description="Resolution type for this bug"
    )


class Original(BaseModel):
    """What rule 2 requires of a duplicate."""

    # A whole number, shown as the SEP prints it.
    duplicateOfId: Annotated[
        int, WithJsonSchema({"type": "number", "description": "Work item ID of the original bug"})
    ]


WORK_ITEMS: dict[int, dict[str, Any]] = {}


@server.tool
async def update_work_item(workItemId: int, fields: dict[str, Any], ctx: Context) -> str:
    """Update the fields of a bug; what the rules of its project require besides is asked for."""
    changes = dict(fields)
    if changes.get("System.State") != "Resolved":
        await ctx.step(save, workItemId, changes)
        return f"Bug #{workItemId} updated: {', '.join(changes) or 'nothing'}."
    message = f"Resolving Bug #{workItemId} requires a resolution. How was this bug resolved?"
    how = (await ctx.elicit(message, Resolution, key="resolution", mode=None)).resolution
    changes["Resolution"] = how
    if how != "Duplicate":
        await ctx.step(save, workItemId, changes)
        return f"Bug #{workItemId} resolved as {how}. State set to Resolved."
    message = "Since this is a duplicate, which work item is the original?"
    original = (await ctx.elicit(message, Original, key="duplicate_of", mode=None)).duplicateOfId
    changes["Duplicate Of"] = original
    await ctx.step(save, workItemId, changes)
    return (
        f"Bug #{workItemId} resolved as Duplicate of Bug #{original}. "
        "State set to Resolved and duplicate link created."
    )


def save(item: int, changes: dict[str, Any]) -> None:
    WORK_ITEMS.setdefault(item, {}).update(changes)


# Seed 002, use case 1: while a new version is rolled out, each round may be served by another version.

ACCOUNTS = {"github": "GitHub", "microsoft": "Microsoft"} if NEW else {"github": "GitHub", "google": "Google"}


@server.tool
async def link_accounts(ctx: Context) -> str:
    """Link two accounts; asks who you are in both of them at once."""
    logins = await asyncio.gather(
        *(
            ctx.elicit(f"Please provide your {title} username", Login, key=f"{site}_login")
            for site, title in ACCOUNTS.items()
        )
    )
    linked = (f"{title} ({login.name})" for title, login in zip(ACCOUNTS.values(), logins, strict=True))
    return f"Linked {' and '.join(linked)}."


# Seed 002, use case 2: a call that is handed back in the middle goes on where it was, on any instance.


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count_primes(
    below: Annotated[int, Field(ge=0, le=5_000_000, description="Count the primes below this number.")],
    ctx: Context,
) -> int:
    """Count prime numbers, in ten steps; a server under load may hand the call on after each of them."""
    size = max(1000, -(-below // 10))
    found = 0
    for start in range(0, below, size):
        found += await ctx.step(primes_between, start, min(start + size, below))
        await ctx.checkpoint()
    return found


def primes_between(start: int, end: int) -> int:
    """How many primes there are from `start` up to `end`, by a sieve over that stretch."""
    stretch = bytearray([1]) * (end - start)
    for factor in range(2, int(end**0.5) + 1):
        first = max(factor * factor, -(-start // factor) * factor)
        stretch[first - start :: factor] = bytes(len(range(first, end, factor)))
    return sum(stretch) - sum(1 for number in (0, 1) if start <= number < end)


# Seed 003: results that people read and programs use. One tool makes an artifact, and the next one takes it.


class Source(BaseModel):
    """Where something is written about a topic."""

    title: str
    uri: str
    relevance: float


class Research(BaseModel):
    """What is known about a topic."""

    topic: str
    summary: str
    sources: list[Source]


class Found(BaseModel):
    """What callers of `research_blog` can rely on."""

    artifact_id: str
    topic: str
    source_count: int
    query_count: int
    research_summary: str
    sources: list[Source]
    status: Literal["completed", "error"]
    next_step: str


class BlogPost(BaseModel):
    """A post that was written."""

    title: str
    slug: str
    description: str
    keywords: list[str]
    content: str
    word_count: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def research_blog(topic: str, skill_id: str = "research_blog") -> Result[Found]:
    """Find sources about a topic, for a post to be written from."""
    if skill_id != "research_blog":
        raise InvalidParams(f"skill_id must be 'research_blog', got '{skill_id}'")
    if not topic.strip():
        raise Failure(
            "## Error\n\nFailed to complete research: there is no topic\n\nPartial results may be available.",
            details={"error": "there is no topic"},
            partial=[],
        )
    sources = [
        Source(
            title=f"{topic} in {place}", uri=f"https://example.com/{number}", relevance=round(1 / number, 2)
        )
        for number, place in enumerate(PLACES, 1)
    ]
    research = Research(topic=topic, summary=f"{len(sources)} places know of {topic}.", sources=sources)
    artifact = Artifact(research, type="research_artifact", title=f"Research: {topic}")
    return Result(
        f"## Research Complete\n\n**Topic:** {topic}\n\nFound {len(sources)} sources.\n\n"
        f"**Artifact ID:** `{artifact.id}`",
        data={
            "topic": topic,
            "source_count": len(sources),
            "query_count": len(PLACES),
            "research_summary": research.summary,
            "sources": sources,
            "status": "completed",
            "next_step": "Call create_blog_post with this artifact_id",
        },
        artifact=artifact,
        next_steps=[
            f"Call `create_blog_post` with:\n"
            f"- `artifact_id`: `{artifact.id}`\n"
            f"- `skill_id`: `blog_writing` or `technical_content_writing`\n"
            f"- `slug`: your-post-slug\n"
            f"- `description`: SEO description\n"
            f'- `keywords`: ["keyword1", "keyword2"]\n'
            f"- `instructions`: specific writing instructions"
        ],
    )


@server.tool
async def create_blog_post(
    research: Annotated[Artifact[Research], Field(alias="artifact_id")],
    slug: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")],
    skill_id: Literal["blog_writing", "technical_content_writing"] = "blog_writing",
    description: str = "",
    keywords: list[str] | None = None,
    instructions: str = "",
) -> Result:
    """Write a post from the research that `research_blog` has given.

    Args:
        research: The artifact_id that research_blog gave.
        description: What search engines show of the post.
        instructions: How to write it.
    """
    found = research.value
    title = found.topic.title()
    lines = [
        f"# {title}",
        found.summary,
        instructions,
        *(f"- [{each.title}]({each.uri})" for each in found.sources),
    ]
    content = "\n\n".join(filter(None, lines))
    words = len(content.split())
    post = Artifact(
        BlogPost(
            title=title,
            slug=slug,
            description=description,
            keywords=keywords or [],
            content=content,
            word_count=words,
        ),
        type="blog_artifact",
        title=title,
    )
    return Result(
        f"## Blog Post Created\n\n**Title:** {title}\n\n**Slug:** {slug}\n\n**Word Count:** {words}\n\n"
        f"Content ID: `{post.id}`",
        data={
            "content_id": post.id,
            "title": title,
            "slug": slug,
            "word_count": words,
            "skill_id": skill_id,
            "status": "completed",
        },
        artifact=post,
    )


@server.tool
async def run_command(command: Literal["date", "expr"], arguments: list[str] | None = None) -> Result:
    """Run one of a few harmless programs; it fails as the program does."""
    process = await asyncio.create_subprocess_exec(
        command, *(arguments or []), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    if process.returncode:
        raise CommandFailed(process.returncode, stderr.decode().strip())
    return Result(stdout.decode(), data={"status": "completed", "exit_code": 0})
