"""FastMCP's client on our server, over HTTP and standard streams."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError

from tests.support.polling import DEADLINE, until
from tests.support.process import SERVERS, ServerProcess, environment

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[(way, mode) for way in ("http", "stdio") for mode in ("legacy", "auto")],
    ids="-".join,
)
async def client(request: pytest.FixtureRequest, everything: ServerProcess) -> AsyncIterator[Any]:
    """A client that is connected."""
    way, mode = request.param
    script = str(SERVERS / "everything.py")
    target: Any = (
        everything.url
        if way == "http"
        else StdioTransport(sys.executable, [script, "--stdio"], env=environment(), keep_alive=False)
    )
    async with Client(target, mode=mode, timeout=DEADLINE) as connected:
        yield connected


async def test_tools_of_all_pages_are_listed(client: Any) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert len(tools) == 14
    assert tools["add"].title == "Add two numbers"


async def test_tools_are_called(client: Any) -> None:
    assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"
    weather = await client.call_tool("weather", {"city": "Oslo"})
    assert weather.structured_content == {"city": "Oslo", "celsius": 21.5, "words": ["mild"]}
    assert weather.data.city == "Oslo"
    primes = (await client.call_tool("primes", {"below": 10})).structured_content
    assert primes in ({"result": [2, 3, 5, 7]}, [2, 3, 5, 7])
    with pytest.raises(ToolError, match="this was to be expected"):
        await client.call_tool("fail", {})


async def test_progress_is_heard(client: Any) -> None:
    heard: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    await client.call_tool("count", {"to": 3}, progress_handler=note)
    await until(lambda: len(heard) == 3)
    assert heard == [1, 2, 3]


async def test_resources_are_listed_and_read(client: Any) -> None:
    assert [str(each.uri) for each in await client.list_resources()] == ["note://first", "note://raw"]
    templates = [each.uri_template for each in await client.list_resource_templates()]
    assert templates == ["note://{name}/{page}", "blob://{name}"]
    (first,) = await client.read_resource("note://first")
    assert first.text == "# First"
    (page,) = await client.read_resource("note://diary/7")
    assert json.loads(page.text) == {"name": "diary", "page": 7}
    (raw,) = await client.read_resource("note://raw")
    assert raw.blob == "AAE="


async def test_prompts_are_listed_filled_in_and_completed(client: Any) -> None:
    (prompt,) = await client.list_prompts()
    assert prompt.name == "greet"
    filled = await client.get_prompt("greet", {"name": "Ada"})
    assert filled.messages[0].content.text == "Greet Ada, warm."
    completed = await client.complete(types.PromptReference(name="greet"), {"name": "name", "value": "G"})
    assert completed.values == ["Grace"]
