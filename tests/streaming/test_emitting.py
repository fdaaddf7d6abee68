"""Emitted values and endings of tools: the same result in every response mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from antiphon import (
    Audio,
    Context,
    EmbeddedResource,
    Failure,
    Image,
    InternalError,
    InvalidParams,
    Limits,
    ResourceLink,
    Result,
    Server,
    Text,
    TextContents,
)
from tests.promises.tooling import store_of
from tests.streaming.speaking import CORE, DIALECTS, reading, speaker, streamed, texts, wish
from tests.streaming.ways import WAYS, go
from tests.support.polling import forever, turns
from tests.support.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST = 100_000
VIDEO = {"type": "video", "url": "https://example.com/nyc.mp4"}


class Point(BaseModel):
    x: int
    y: int = 0


def make(kind: str, folder: Any) -> Server:
    server = Server(
        "emitting", store=store_of(kind, folder), limits=Limits(max_answer_bytes=MOST, drain_timeout=0.2)
    )

    def tool(function: Any) -> Any:
        return server.tool(task="optional", poll_interval=0.05)(function)

    @tool
    async def generator() -> AsyncIterator[str]:
        """An async generator."""
        yield "a"
        await turns()
        yield "b"

    @tool
    def sync_generator() -> Generator[str, None, str]:
        """A generator in a thread that returns a value."""
        yield "a"
        yield "b"
        return "c"

    @tool
    def typed_generator() -> Generator[str, None, Point]:
        """One that returns data."""
        yield "a"
        return Point(x=1)

    @tool
    async def emitter(ctx: Context) -> str:
        """Emits with `ctx.emit`."""
        await ctx.emit("a")
        await ctx.emit("b")
        return "c"

    @tool
    def sync_emitter(ctx: Context) -> None:
        """The same, in a thread."""
        ctx.wait(ctx.emit("a"))
        ctx.wait(ctx.emit("b"))

    @tool
    async def typed_emitter(ctx: Context) -> Point:
        """Emits, and returns data."""
        await ctx.emit("a")
        return Point(x=1, y=2)

    @tool
    async def blocks() -> AsyncIterator[Any]:
        """Emits every kind of block."""
        yield "text"
        yield Text("block", meta={"k": 1})
        yield Image.of(b"png", "image/png")
        yield Audio.of(b"wav", "audio/wav")
        yield ResourceLink(uri="file:///a", name="a")
        yield EmbeddedResource(TextContents(uri="file:///b", text="b"))
        yield Point(x=1)
        yield {"a": [1, None]}
        yield 7
        yield None
        yield [Text("one"), "two", Point(x=3)]
        yield [1, 2]
        yield VIDEO
        yield {"type": "video", "title": "no address"}
        yield [VIDEO, {"type": "text", "text": "three"}]

    @tool
    async def closing() -> AsyncIterator[Any]:
        """Ends with a `Result`."""
        yield "a"
        yield Result(["b", Text("c")], data={"sum": 3}, meta={"took": "long"})

    @tool
    async def closing_badly() -> AsyncIterator[Any]:
        """Ends with one that says that it failed."""
        yield "a"
        yield Result("no", is_error=True)

    @tool
    async def returning(ctx: Context) -> Result:
        """Emits, and returns a `Result`."""
        await ctx.emit("a")
        return Result("b", data={"sum": 3}, meta={"took": "long"})

    @tool
    async def silent() -> AsyncIterator[str]:
        """A generator that yields nothing."""
        for word in ():
            yield word

    @tool
    async def ends(how: str, emits: int = 2) -> AsyncIterator[str]:
        """Ends in one of the ways to end."""
        for number in range(1, emits + 1):
            yield str(number)
        if how == "Failure":
            raise Failure("It cannot be done.", data={"why": "wrong"})
        if how == "Result":
            raise Failure("Blocks.", content=[Text("This"), Text("and that.")])
        if how == "InvalidParams":
            raise InvalidParams("Not like that.", data={"how": "so"})
        if how == "InternalError":
            raise InternalError("It broke.")
        if how == "crash":
            raise ZeroDivisionError("a secret of the implementation")

    @tool
    async def stepping(ctx: Context) -> AsyncIterator[str]:
        """Has a step that emits."""

        async def emit() -> None:
            await ctx.emit("from a step")

        yield "a"
        await ctx.step(emit)

    @tool
    async def much(size: int, n: int) -> AsyncIterator[str]:
        """Emits more than an answer may have."""
        for _ in range(n):
            yield "x" * size

    @server.tool(timeout=0.2)
    async def late() -> AsyncIterator[str]:
        """Takes too long."""
        yield "1"
        yield "2"
        await forever()

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """The port of the server."""
    async with serving(make("sqlite", tmp_path_factory.mktemp("emitting"))) as address:
        yield address.port


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """A response mode."""
    return str(request.param)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """A dialect."""
    return str(request.param)


# What can be emitted


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("generator", ["a", "b"]),
        ("sync_generator", ["a", "b", "c"]),
        ("emitter", ["a", "b", "c"]),
        ("sync_emitter", ["a", "b"]),
        ("silent", []),
    ],
)
async def test_what_is_emitted_comes_before_what_is_returned(
    port: int, way: str, dialect: str, tool: str, content: list[str]
) -> None:
    ended = await go(way, dialect, port, tool)
    assert (ended.content, ended.is_error, ended.structured) == (content, False, None)


@pytest.mark.parametrize(("tool", "data"), [("typed_generator", {"x": 1, "y": 0}), ("typed_emitter", None)])
async def test_data_that_is_returned_is_not_written_out_after_the_segments(
    port: int, way: str, dialect: str, tool: str, data: Any
) -> None:
    ended = await go(way, dialect, port, tool)
    assert (ended.content, ended.structured) == (["a"], data or {"x": 1, "y": 2})


async def test_every_kind_of_block_can_be_emitted(port: int, way: str, dialect: str) -> None:
    ended = await go(way, dialect, port, "blocks")
    assert ended.content == [
        "text",
        "block",
        {"type": "image", "data": "cG5n", "mimeType": "image/png"},
        {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}},
        '{"x":1,"y":0}',
        '{"a":[1,null]}',
        "7",
        "one",
        "two",
        '{"x":3,"y":0}',
        "[1,2]",
        VIDEO,
        '{"type":"video","title":"no address"}',
        VIDEO,
        "three",
    ]


@pytest.mark.parametrize(("tool", "content"), [("closing", ["a", "b", "c"]), ("returning", ["a", "b"])])
async def test_a_result_says_more_than_its_blocks(
    port: int, way: str, dialect: str, tool: str, content: list[str]
) -> None:
    ended = await go(way, dialect, port, tool)
    assert (ended.content, ended.is_error) == (content, False)
    assert ended.structured == {"sum": 3}
    assert ended.meta == {"took": "long"}


async def test_a_last_result_may_say_that_it_failed(port: int, way: str, dialect: str) -> None:
    ended = await go(way, dialect, port, "closing_badly")
    assert (ended.content, ended.is_error) == (["a", "no"], True)


# How it can end


@pytest.mark.parametrize(
    ("how", "words"),
    [("Failure", ["It cannot be done."]), ("Result", ["This", "and that."])],
)
async def test_a_failure_comes_after_what_there_was(
    port: int, way: str, dialect: str, how: str, words: list[str]
) -> None:
    ended = await go(way, dialect, port, "ends", how=how)
    assert (ended.content, ended.is_error) == (["1", "2", *words], True)
    if how == "Failure":
        assert ended.structured == {"why": "wrong"}
    if "stream" in way and dialect != "2026-07-28":
        assert (ended.last["isError"], ended.last["isComplete"]) == (True, True)
        assert "content" not in ended.last


async def test_a_crash_comes_after_what_there_was_and_leaks_nothing(
    port: int, way: str, dialect: str
) -> None:
    ended = await go(way, dialect, port, "ends", how="crash")
    assert ended.content[:2] == ["1", "2"]
    assert "failed with an internal error" in ended.content[2]
    assert "secret of the implementation" not in str(ended)
    assert ended.is_error is True


@pytest.mark.parametrize("how", ["Failure", "crash"])
async def test_a_failure_without_segments_is_content(port: int, way: str, dialect: str, how: str) -> None:
    ended = await go(way, dialect, port, "ends", how=how, emits=0)
    assert (len(ended.content), ended.is_error) == (1, True)
    if way == "stream" or dialect != "2026-07-28":
        assert ended.segments == []
    if "stream" in way and dialect != "2026-07-28":
        assert ended.last["isComplete"] is True
        assert "partial-content" not in ended.last


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [("InvalidParams", -32602, "Not like that."), ("InternalError", -32603, "It broke.")],
)
@pytest.mark.parametrize("emits", [0, 2])
async def test_a_json_rpc_error_comes_after_what_there_was(
    port: int, way: str, dialect: str, how: str, code: int, message: str, emits: int
) -> None:
    ended = await go(way, dialect, port, "ends", how=how, emits=emits)
    assert ended.is_error is True
    if way == "task stream" and dialect != "2026-07-28":  # a response with what there was, or the words
        assert (ended.last["isComplete"], ended.last["isError"]) == (True, True)
        assert ended.content == (["1", "2"] if emits else [message])
        return
    assert ended.error is not None
    assert (ended.error["code"], ended.error["message"]) == (code, message)
    assert ended.error.get("data") == ({"how": "so"} if how == "InvalidParams" else None)
    assert ended.segments == ([(1, "1"), (2, "2")] if "stream" in way and emits else [])


async def test_a_call_that_takes_too_long_ends_with_what_there_was(port: int, dialect: str) -> None:
    for ended in await asyncio.gather(*(go(way, dialect, port, "late") for way in ("answer", "stream"))):
        assert ended.content == ["1", "2", "The tool 'late' did not finish within 0.2 seconds."]
        assert ended.is_error is True


async def test_a_step_that_emits_is_refused(port: int, way: str, dialect: str) -> None:
    ended = await go(way, dialect, port, "stepping")
    assert ended.is_error is True
    assert ended.content[0] == "a"
    assert "from a step" not in ended.content


# Bounds


async def test_an_answer_has_a_bound(port: int, dialect: str) -> None:
    for way in ("answer", "stream"):
        ended = await go(way, dialect, port, "much", size=30_000, n=20)
        assert ended.is_error is True
        assert len(ended.content) == 5
        assert ended.content[-1].startswith(f"The answer exceeds the limit of {MOST} bytes.")
        within = await go(way, dialect, port, "much", size=30_000, n=3)
        assert (len(within.content), within.is_error) == (3, False)


async def test_a_task_has_none(port: int, dialect: str) -> None:
    for way in ("task", "task stream"):
        ended = await go(way, dialect, port, "much", size=30_000, n=20)
        assert (len(ended.content), ended.is_error) == (20, False)


# As it comes


@pytest.mark.parametrize("wanted", ["stream", "task stream"])
async def test_each_message_says_that_more_will_come_but_the_last(port: int, wanted: str) -> None:
    for dialect in CORE:
        client = await speaker(dialect, port)
        params = wish("much", "streaming", size=1, n=2000)
        if wanted == "stream":
            params = streamed(client, "much", size=1, n=2000)
        async with reading(client, "tools/call", params, id="the id") as stream:
            await stream.rest()
            assert len(texts(stream.frames)) == 2000
            assert 2 <= len(stream.frames) < 200
            assert {frame["id"] for frame in stream.frames} == {"the id"}
            said = [frame["result"]["isComplete"] for frame in stream.frames]
            assert said == [False] * (len(said) - 1) + [True]
            assert {"isError", "partial-content"} <= set.intersection(
                *(set(frame["result"]) for frame in stream.frames)
            )
            types = {frame["result"].get("resultType") for frame in stream.frames}
            assert types == ({"complete"} if dialect == "draft" else {None})
