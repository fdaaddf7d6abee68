"""The official Python client on our server, on both kinds of versions, over HTTP and standard streams."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
import pytest_asyncio
from mcp import Client, MCPDeprecationWarning, MCPError, StdioServerParameters

from tests.support.polling import DEADLINE, until
from tests.support.process import SERVERS, ServerProcess, environment

MODERN = "2026-07-28"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=["http", "stdio"])
def target(request: pytest.FixtureRequest, everything: ServerProcess) -> Any:
    """Where the server is."""
    if request.param == "http":
        return everything.url
    script = str(SERVERS / "everything.py")
    return StdioServerParameters(command=sys.executable, args=[script, "--stdio"], env=environment())


@pytest.fixture(scope="module", params=["legacy", "auto", MODERN])
def mode(request: pytest.FixtureRequest) -> str:
    """How the client finds out which version to speak."""
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(target: Any, mode: str) -> AsyncIterator[Client]:
    """A client, which must be closed in the task that opened it. The end of a fixture is not in that task."""
    opened, may_close = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def hold_open() -> None:
        async with Client(target, mode=mode, read_timeout_seconds=DEADLINE) as client:
            opened.set_result(client)
            await may_close.wait()

    holding = asyncio.create_task(hold_open())
    await asyncio.wait({opened, holding}, return_when=asyncio.FIRST_COMPLETED)
    yield await (opened if opened.done() else holding)
    may_close.set()
    await holding


async def test_who_the_server_is(client: Client, mode: str) -> None:
    expected = "2025-11-25" if mode == "legacy" else MODERN
    assert client.protocol_version == expected
    if mode != MODERN:  # one that pins a version never asks
        assert client.server_info is not None
        assert client.server_info.name == "everything"
        assert client.instructions == "Try each tool."


async def test_tools_of_all_pages_are_listed(client: Client) -> None:
    tools: dict[str, types.Tool] = {}
    cursor: str | None = None
    for _ in range(10):
        page = await client.list_tools(cursor=cursor)
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(tools) == 14
    assert tools["add"].title == "Add two numbers"
    assert tools["add"].input_schema["required"] == ["a"]
    assert tools["weather"].output_schema is not None


async def test_tools_are_called(client: Client, mode: str) -> None:
    assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"  # type: ignore[union-attr]
    weather = await client.call_tool("weather", {"city": "Oslo", "place": {"latitude": 59.9}})
    assert weather.structured_content == {"city": "Oslo", "celsius": 59.9, "words": ["mild"]}
    primes = (await client.call_tool("primes", {"below": 10})).structured_content
    assert primes == ({"result": [2, 3, 5, 7]} if mode == "legacy" else [2, 3, 5, 7])
    picture = await client.call_tool("picture", {})
    assert [block.type for block in picture.content] == ["text", "image"]


async def test_failures_are_results_and_wrong_requests_are_errors(client: Client) -> None:
    failed = await client.call_tool("fail", {})
    assert failed.is_error
    assert failed.content[0].text == "this was to be expected"  # type: ignore[union-attr]
    wrong = await client.call_tool("add", {"a": "two"})
    assert wrong.is_error
    with pytest.raises(MCPError) as refused:
        await client.call_tool("none", {})
    assert refused.value.error.code == -32602


async def test_arguments_are_mirrored_in_headers(client: Client) -> None:
    await client.list_tools()
    page = await client.list_tools(cursor="8")
    assert "region" in {tool.name for tool in page.tools}
    assert (await client.call_tool("region", {"where": "Malmö"})).content[0].text == "in Malmö"  # type: ignore[union-attr]


async def test_progress_is_heard(client: Client) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    await client.call_tool("count", {"to": 3}, progress_callback=note)
    await until(lambda: len(heard) == 3)
    assert heard == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]


async def test_resources_are_listed_and_read(client: Client) -> None:
    assert [str(each.uri) for each in (await client.list_resources()).resources] == [
        "note://first",
        "note://raw",
    ]
    templates = (await client.list_resource_templates()).resource_templates
    assert [each.uri_template for each in templates] == ["note://{name}/{page}", "blob://{name}"]
    (first,) = (await client.read_resource("note://first")).contents
    assert isinstance(first, types.TextResourceContents)
    assert (first.text, first.mime_type) == ("# First", "text/markdown")
    (raw,) = (await client.read_resource("note://raw")).contents
    assert isinstance(raw, types.BlobResourceContents)
    assert raw.blob == "AAE="
    (page,) = (await client.read_resource("note://diary/7")).contents
    assert isinstance(page, types.TextResourceContents)
    assert json.loads(page.text) == {"name": "diary", "page": 7}
    with pytest.raises(MCPError):
        await client.read_resource("note://")


async def test_prompts_are_listed_filled_in_and_completed(client: Client) -> None:
    (prompt,) = (await client.list_prompts()).prompts
    assert [argument.name for argument in prompt.arguments or []] == ["name", "tone"]
    filled = await client.get_prompt("greet", {"name": "Ada", "tone": "wry"})
    assert [message.role for message in filled.messages] == ["user", "assistant"]
    assert filled.messages[0].content.text == "Greet Ada, wry."  # type: ignore[union-attr]
    reference = types.PromptReference(name="greet")
    completed = await client.complete(reference, {"name": "name", "value": "A"})
    assert completed.completion.values == ["Ada", "Alan"]
    template = types.ResourceTemplateReference(uri="note://{name}/{page}")
    pages = await client.complete(template, {"name": "page", "value": "1"}, {"name": "first"})
    assert pages.completion.values == ["10", "11", "12"]


async def test_log_messages_are_heard(target: Any, mode: str) -> None:
    heard: list[Any] = []

    async def note(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    level = None if mode == "legacy" else "info"
    async with Client(target, mode=mode, logging_callback=note, log_level=level) as client:
        await client.call_tool("talk", {})
        await until(lambda: len(heard) == 2)
    assert heard == ["talking", {"nothing": "wrong"}]


async def test_changes_are_heard(target: Any, mode: str) -> None:
    heard: list[Any] = []

    async def note(message: Any) -> None:
        heard.append(type(message).__name__)

    async with Client(target, mode=mode, message_handler=note) as client:
        if mode == "legacy":
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource("note://first")
            await client.call_tool("grow", {})
            await until(lambda: {"ToolListChangedNotification", "ResourceUpdatedNotification"} <= set(heard))
        else:
            async with client.listen(
                tools_list_changed=True, resource_subscriptions=["note://first"]
            ) as changes:
                await client.call_tool("grow", {})
                found = {type(await anext(aiter(changes))).__name__ for _ in range(2)}
            assert len(found) == 2
