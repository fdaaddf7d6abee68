"""Antiphon's client with the servers of other libraries, over HTTP and stdio, on several versions."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import pytest
import pytest_asyncio

from antiphon import Failure
from antiphon.client import Client
from antiphon.errors import RequestError, TimedOut
from antiphon.model.content import Text
from antiphon.model.notification import Log, Progress
from tests.support.polling import turns

Target: TypeAlias = str | list[str]
VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18"]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=VERSIONS, scope="module", loop_scope="module")
async def client(target: Target, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with Client(target, protocol=request.param) as connected:
        assert connected.version == request.param
        yield connected


async def test_without_a_version_the_newest_is_spoken(target: Target) -> None:
    async with Client(target) as client:
        assert client.version == "2026-07-28"


async def test_the_server_says_who_it_is(client: Client) -> None:
    assert client.server is not None
    assert (client.server.name, client.server.version) == ("peer", "1.2.3")
    assert client.instructions == "Be kind."
    assert "tools" in client.capabilities
    await client.ping()


async def test_tools_are_listed_with_their_schemas(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.tools()}
    assert set(tools) == {"add", "greet", "fail", "slow"}
    assert tools["add"].input_schema["required"] == ["a", "b"]


async def test_a_call_gives_blocks_and_data(client: Client) -> None:
    result = await client.call("add", {"a": 1}, b=2)
    assert result.text == "3"
    assert result.data == {"result": 3}


async def test_text_of_any_script_arrives_whole(client: Client) -> None:
    assert (await client.call("greet", name="Åse 世界\n")).text == "Hello, Åse 世界\n!"


async def test_a_tool_that_fails_raises_unless_unchecked(client: Client) -> None:
    with pytest.raises(Failure, match="fail") as failed:
        await client.call("fail")
    assert isinstance(failed.value.content[0], Text)
    assert (await client.call("fail", check=False)).is_error


async def test_progress_is_reported_before_the_call_returns(client: Client) -> None:
    reported: list[Progress] = []

    async def note(progress: Progress) -> None:
        await turns()
        reported.append(progress)

    await client.call("slow", seconds=0.01, on_progress=note)
    assert [(each.progress, each.total, each.message) for each in reported] == [
        (1, 3, "Step 1"),
        (2, 3, "Step 2"),
        (3, 3, "Step 3"),
    ]


async def test_log_messages_reach_the_callback(target: Target) -> None:
    heard: list[Log] = []
    async with Client(target, on_log=heard.append) as client:
        await client.call("slow", seconds=0.01)
    assert "Starting." in str(heard[0].data)
    assert heard[0].level == "info"


async def test_a_call_that_takes_too_long_times_out_and_the_client_goes_on(client: Client) -> None:
    with pytest.raises(TimedOut, match=r"tools/call.*timeout="):
        await client.call("slow", seconds=30, timeout=0.2)
    assert (await client.call("add", a=1, b=1)).text == "2"


async def test_many_calls_at_once_each_get_their_own_answer(client: Client) -> None:
    results = await asyncio.gather(*(client.call("add", a=number, b=1) for number in range(50)))
    assert [result.text for result in results] == [str(number + 1) for number in range(50)]


async def test_resources_and_templates_are_listed_and_read(client: Client) -> None:
    assert [resource.uri for resource in await client.resources()] == ["memo://welcome"]
    assert [template.uri_template for template in await client.templates()] == ["memo://{name}/note"]
    assert [part.text for part in (await client.read("memo://welcome")).contents] == ["Welcome."]
    assert [part.text for part in (await client.read("memo://Ada/note")).contents] == ["A note for Ada."]


async def test_a_missing_resource_is_an_error_with_a_code(client: Client) -> None:
    with pytest.raises(RequestError) as refused:
        await client.read("memo://nowhere/at/all")
    assert refused.value.code in (-32602, -32002)


async def test_prompts_are_listed_and_filled_in(client: Client) -> None:
    (prompt,) = await client.prompts()
    assert prompt.arguments is not None
    assert [argument.name for argument in prompt.arguments] == ["name"]
    filled = await client.prompt("introduce", {"name": "Ada"})
    assert filled.messages[0].content == Text("Please introduce Ada.")
