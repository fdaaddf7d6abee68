"""The official Python client parses every pattern of seed 003 with its own models, structured output too."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.patterns.conftest import in_a_thread
from tests.patterns.tooling import make, png

MODERN = "2026-07-28"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the server of the patterns is."""
    with in_a_thread(make(store="memory:")) as address:
        yield address.url


@pytest.fixture(params=["legacy", MODERN])
def mode(request: pytest.FixtureRequest) -> str:
    """Which version the client speaks."""
    return str(request.param)


@pytest.fixture
def connect(url: str, mode: str) -> Callable[[], Client]:
    """Makes a client; it must be closed in the task that opened it."""
    return lambda: Client(url, mode=mode, read_timeout_seconds=60)


def text(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


SUCCESSES: list[tuple[str, dict[str, Any], Any]] = [
    ("simple", {}, {"status": "completed"}),
    ("text", {}, None),
    ("model", {}, {"topic": "bees", "sources": [{"title": "A", "uri": "https://a", "relevance": 1.0}]}),
    ("spoken", {}, {"title": "Bees", "words": 3}),
    ("size", {}, {"width": 3}),
    ("mapping", {}, {"status": "completed", "at": {"width": 1}}),
    ("numbers", {}, [1, 2]),
    ("several", {}, None),
    ("rich", {}, {"topic": "bees", "sources": [{"title": "A", "uri": "https://a", "relevance": 0.5}]}),
    ("steps", {"count": 1}, {"next_steps": ["Call `create_blog_post`."], "status": "completed"}),
    ("streamed", {}, {"count": 2}),
]


@pytest.mark.parametrize(("tool", "arguments", "data"), SUCCESSES, ids=[case[0] for case in SUCCESSES])
async def test_a_success_is_parsed(
    connect: Callable[[], Client], mode: str, tool: str, arguments: dict[str, Any], data: Any
) -> None:
    async with connect() as client:
        await client.list_tools()  # with which it checks structured content against the schema
        result = await client.call_tool(tool, arguments)
    assert result.is_error is False
    expected = {"result": data} if mode == "legacy" and isinstance(data, list) else data
    assert result.structured_content == expected
    assert text(result)


async def test_pictures_and_sounds_are_parsed(connect: Callable[[], Client]) -> None:
    async with connect() as client:
        _, picture, sound, *_ = (await client.call_tool("media", {})).content
    assert isinstance(picture, types.ImageContent)
    assert isinstance(sound, types.AudioContent)
    assert base64.b64decode(picture.data) == png()
    assert sound.mime_type == "audio/wav"


async def test_an_artifact_goes_from_tool_to_tool_and_is_read(connect: Callable[[], Client]) -> None:
    async with connect() as client:
        await client.list_tools()
        created = await client.call_tool("create", {"topic": "bees"})
        assert created.structured_content is not None
        id = created.structured_content["artifact_id"]
        assert created.meta is not None
        assert created.meta["ui_uri"] == f"ui://patterns/{id}"
        link = created.content[-1]
        assert isinstance(link, types.ResourceLink)
        assert text(await client.call_tool("use", {"artifact_id": id})) == "research_artifact: bees"
        listed = (await client.list_resources()).resources
        assert link.uri in [each.uri for each in listed]
        for uri in (link.uri, f"{link.uri}?offset=0&length=10", created.meta["ui_uri"]):
            (contents,) = (await client.read_resource(uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert '{"topic":"bees","sources":[]}'.startswith(contents.text)
        for tool, arguments in (("blog", {}), ("note", {}), ("raw", {}), ("long_list", {"items": 1000})):
            result = await client.call_tool(tool, arguments)
            assert isinstance(result.content[-1], types.ResourceLink)
        with pytest.raises(MCPError):
            await client.read_resource("artifact://patterns/none")


async def test_failures_are_parsed(connect: Callable[[], Client]) -> None:
    async with connect() as client:
        partial = await client.call_tool("partial", {})
        assert partial.is_error
        assert partial.structured_content is not None
        assert partial.structured_content["partial_results"][0]["title"] == "A"
        command = await client.call_tool("command", {})
        assert (command.is_error, text(command).startswith("Command failed (exit code 2)")) == (True, True)
        for tool in ("crash", "lying", "breaks_off", "partial_text"):
            assert (await client.call_tool(tool, {})).is_error
        unknown = await client.call_tool("use", {"artifact_id": "none"})
        assert (unknown.is_error, "again" in text(unknown)) == (True, True)


@pytest.mark.parametrize(
    ("error", "code"), [("params", -32602), ("request", -32600), ("internal", -32603), ("method", -32601)]
)
async def test_json_rpc_errors_are_parsed(connect: Callable[[], Client], error: str, code: int) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("refuse", {"error": error})
    assert refused.value.error.code == code
