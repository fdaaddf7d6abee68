"""A server with a tool for every pattern of seed 003, and clients in every dialect."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from antiphon import (
    Artifact,
    Audio,
    CommandFailed,
    Context,
    Failure,
    Image,
    InternalError,
    InvalidParams,
    InvalidRequest,
    Limits,
    MethodNotFound,
    Principal,
    Result,
    Server,
    Text,
)
from tests.promises.speaking import begin, reach
from tests.promises.tooling import speaker
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.speakers import Modern, Speaker

DIALECTS = ("draft", "2025-11-25", "2026-07-28")

SECRET = "the password is s3cret"


def png() -> bytes:
    """Return an image of one black pixel."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", pixels) + part(b"IEND", b"")


WAV = b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)


class Source(BaseModel):
    title: str
    uri: str
    relevance: float


class Report(BaseModel):
    topic: str
    sources: list[Source] = []


class Spoken(BaseModel):
    """A model with its own `__str__`."""

    title: str
    words: int

    def __str__(self) -> str:
        return f"**{self.title}**, {self.words} words"


class Created(BaseModel):
    """The model of seed 003, "Match Schema to Output"."""

    artifact_id: str
    status: Literal["completed", "error"]


@dataclass
class Size:
    width: int


async def plainly(dialect: str, port: int, **options: Any) -> Speaker:
    """Return a client of a dialect that does not accept tasks."""
    if dialect == "2026-07-28":
        return Modern(port, **options)
    return await speaker(dialect, port, **options)


async def redeemed(speaker: Speaker, tool: str, **arguments: Any) -> dict[str, Any]:
    """Run a tool as a task; return its result, or its error under the key `error`."""
    id = (await begin(speaker, tool, **arguments))["taskId"]
    task = await reach(speaker, id, "completed", "failed")
    if isinstance(speaker, Modern):
        return {"error": task["error"]} if "error" in task else dict(task["result"])
    frame = (await speaker.ask("tasks/result", {"taskId": id})).frame
    return {"error": frame["error"]} if "error" in frame else dict(frame["result"])


def authenticate(headers: Mapping[str, str]) -> Principal:
    """Trust the name in the header."""
    return Principal(headers.get("x-who", "anyone"))


def make(**options: Any) -> Server:
    """Return a server with one tool for each pattern."""
    options.setdefault("limits", Limits(drain_timeout=0.2, lease_seconds=LONG_LEASE_SECONDS))
    server = Server("patterns", authenticate=authenticate, secrets=["a secret of the patterns"], **options)
    _succeeding(server)
    _keeping(server)
    _failing(server)
    return server


def _succeeding(server: Server) -> None:
    @server.tool
    async def simple() -> Result:
        return Result("Task completed successfully.", data={"status": "completed"})

    @server.tool(task="optional", poll_interval=0.05)
    async def text() -> str:
        return "Just words."

    @server.tool
    async def model() -> Report:
        return Report(topic="bees", sources=[Source(title="A", uri="https://a", relevance=1)])

    @server.tool
    async def spoken() -> Spoken:
        return Spoken(title="Bees", words=3)

    @server.tool
    async def size() -> Size:
        return Size(3)

    @server.tool
    async def mapping():  # type: ignore[no-untyped-def]
        return {"status": "completed", "at": Size(1)}

    @server.tool
    async def numbers() -> list[int]:
        return [1, 2]

    @server.tool
    async def several() -> list[Text]:
        return [Text("## Summary\n\nOperation completed."), Text("### Details\n\nNone.")]

    @server.tool
    async def media() -> list[str | bytes | Image | Audio]:
        return ["A picture and a sound.", Image.of(png()), Audio.of(WAV), png(), WAV]

    @server.tool(task="optional", poll_interval=0.05)
    async def rich() -> Result[Report]:
        source = Source(title="A", uri="https://a", relevance=0.5)
        return Result("## Research Complete", data=Report(topic="bees", sources=[source]), meta={"took": 3})

    @server.tool
    async def steps(count: int = 1) -> Result:
        steps = ["Call `create_blog_post`.", "Rest."][:count]
        return Result("Done.", data={"status": "completed"}, next_steps=steps)

    @server.tool
    async def silent() -> Result:
        return Result(data={"status": "completed"})

    @server.tool
    async def lying() -> Report:
        return {"topic": 3, "sources": SECRET}  # type: ignore[return-value]

    @server.tool
    async def empty_handed() -> Result[Report]:
        return Result("There is no data here.")

    @server.tool
    async def streamed(ctx: Context) -> AsyncIterator[str | Result]:
        yield "first"
        yield "second"
        yield Result(data={"count": 2})


def _keeping(server: Server) -> None:
    @server.tool(task="optional", poll_interval=0.05)
    async def create(topic: str = "bees") -> Result[Created]:
        artifact = Artifact(Report(topic=topic), type="research_artifact", title=topic)
        return Result(f"**Artifact ID:** `{artifact.id}`", data={"status": "completed"}, artifact=artifact)

    @server.tool
    async def blog() -> Artifact[Spoken]:
        return Artifact(Spoken(title="Bees", words=3), type="blog_artifact", ttl=60)

    @server.tool
    async def wrong_blog() -> Artifact[Spoken]:
        return Artifact({"title": SECRET}, type="blog_artifact")  # type: ignore[arg-type]

    @server.tool
    async def note(text: str = "Grüße", ttl: float = 60) -> Artifact[str]:
        return Artifact(text, mime_type="text/markdown", ttl=ttl)

    @server.tool
    async def raw() -> Artifact[bytes]:
        return Artifact(bytes(range(256)))

    @server.tool
    async def streamed_artifact() -> AsyncIterator[str | Artifact[Report]]:
        yield "Working."
        yield Artifact(Report(topic="streams"))

    @server.tool
    async def use(artifact_id: Artifact[Report]) -> str:
        assert isinstance(artifact_id.value, Report)
        return f"{artifact_id.type}: {artifact_id.value.topic}"

    @server.tool
    async def use_all(artifacts: list[Artifact[Any]]) -> str:
        return " ".join(str(artifact.value) for artifact in artifacts)

    @server.tool
    async def use_pieces(artifact: Artifact[AsyncIterator[bytes]]) -> int:
        return sum([len(piece) async for piece in artifact.value])

    @server.tool(artifact_over=2000)
    async def long_text(lines: int) -> str:
        return "\n".join(f"line {number}" for number in range(lines))

    @server.tool(artifact_over=2000)
    async def long_report(sources: int) -> Report:
        source = Source(title="A", uri="https://a", relevance=1)
        return Report(topic="bees", sources=[source] * sources)

    @server.tool(artifact_over=2000)
    async def long_list(items: int) -> list[int]:
        return list(range(items))


def _failing(server: Server) -> None:
    tool = server.tool(task="optional", poll_interval=0.05)

    @tool
    async def partial() -> str:
        raise Failure(
            "## Error\n\nFailed to complete research: timeout\n\nPartial results may be available.",
            details={"error": "timeout"},
            partial=[Source(title="A", uri="https://a", relevance=1)],
        )

    @tool
    async def partial_text() -> str:
        raise Failure("It stopped in the middle.", partial="What there was.")

    @tool
    async def command() -> str:
        raise CommandFailed(2, "no such file", partial={"stdout": "a"})

    @tool
    async def refuse(error: Literal["params", "request", "internal", "method"]) -> str:
        kinds = {
            "params": InvalidParams("Missing required parameter: topic"),
            "request": InvalidRequest("Malformed", data={"at": Size(1)}),
            "internal": InternalError("It broke."),
            "method": MethodNotFound("No such tool."),
        }
        raise kinds[error]

    @tool
    async def crash() -> str:
        raise RuntimeError(SECRET)

    @tool
    async def breaks_off(ctx: Context) -> AsyncIterator[str]:
        yield "first"
        yield "second"
        raise Failure("It stopped.", details={"done": 2}, partial={"third": "half"})
