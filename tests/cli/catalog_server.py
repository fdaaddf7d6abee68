"""A server with resources, templates, prompts and completions, some of which ask questions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from antiphon import Artifact, Audio, BlobContents, Context, EmbeddedResource, Image, Result, Server, Text

server = Server("library")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 92
LANGUAGES = ["German", "Greek", "Italian", "Latin"]


@server.resource("notes://today", title="Today", mime_type="text/markdown")
async def today() -> str:
    """The notes of the day.

    A second paragraph.
    """
    return "# Notes\n\nBuy **tea**."


@server.resource("data://table.csv", mime_type="text/csv")
async def table() -> str:
    """A table."""
    return "a,b\n1,**2**\n"


@server.resource("pictures://logo", mime_type="image/png")
async def logo() -> bytes:
    """The logo."""
    return PNG


@server.resource("notes://{day}/{hour}")
async def at(day: str, hour: str) -> str:
    """The notes of an hour."""
    return f"{day} at {hour}"


@server.completion("notes://{day}/{hour}", "hour")
async def hours(value: str, context: dict[str, str]) -> list[str]:
    return [hour for hour in ("08", "09", "18") if hour.startswith(value) and context.get("day") != "Sunday"]


@server.resource("secrets://safe")
async def safe(ctx: Context) -> str:
    """A resource that asks before it is read."""
    return f"opened with {await ctx.elicit('Which code?', int, key='code')}"


@server.resource("hostile://text")
async def hostile_text() -> str:
    """Escapes \x1b[31mand more."""
    return "red \x1b[31mtext\x1b[0m \u202e**end**"


@server.prompt
async def translate(text: str, language: str = "German") -> str:
    """Translate a text."""
    return f"Translate into {language}: {text}"


@server.completion("translate", "language")
async def languages(value: str) -> list[str]:
    return [language for language in LANGUAGES if language.startswith(value)]


@server.prompt
async def interview(ctx: Context) -> list[dict[str, Any]]:
    """Ask, and talk."""
    name = await ctx.elicit("Who are you?", str, key="name")
    return [
        {"role": "user", "content": {"type": "text", "text": f"I am {name}."}},
        {"role": "assistant", "content": {"type": "text", "text": "Hello."}},
    ]


@server.tool
async def picture() -> list[Text | Image | Audio]:
    """Return an image and audio."""
    return [Text("Look:"), Image.of(PNG), Image.of(PNG), Audio.of(b"RIFF0000WAVE")]


@server.tool
async def attach(uri: str, kind: str = "application/octet-stream") -> EmbeddedResource:
    """Return a resource under any URI."""
    return EmbeddedResource(BlobContents(uri, "AAEC", kind))


@server.tool
async def history(lines: int) -> Artifact[AsyncIterator[str]]:
    """Return an artifact."""

    async def pieces() -> AsyncIterator[str]:
        for number in range(lines):
            yield f"line {number}\n"

    return Artifact(pieces(), type="log", title="The log/of ../everything")


@server.tool
async def say(text: str) -> Result:
    """Return a text."""
    return Result(text)
