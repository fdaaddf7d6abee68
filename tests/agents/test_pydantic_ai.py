"""`AntiphonToolset` in agents of the real Pydantic AI, with its scripted models."""

from __future__ import annotations

import asyncio
import base64
import importlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from antiphon import Client, ClientGroup, Image, Result, Server
from antiphon.agents.pydantic_ai import AntiphonToolset
from antiphon.errors import Unreachable
from tests.agents.servers import PIXEL, filter_server, travel_server
from tests.support.serving import serving


def calling(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """A model that makes these calls, one after the other, and then says that it is done."""
    script = iter(calls)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        call = next(script, None)
        return ModelResponse([TextPart("done") if call is None else ToolCallPart(*call)])

    return FunctionModel(answer)


async def returns(
    client: Client | ClientGroup, *calls: tuple[str, dict[str, Any]], **options: Any
) -> list[Any]:
    """What the tools returned to the model, in an agent's run."""
    agent = Agent(calling(*calls), toolsets=[AntiphonToolset(client, **options)])
    run = await agent.run("Go.")
    assert run.output == "done"
    parts = [part for message in run.all_messages() for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]


async def test_an_agent_calls_tools_that_ask_and_tasks_over_a_socket() -> None:
    server, release = travel_server()
    release.set()
    async with serving(server) as address:
        client = Client(address.url, elicit=lambda question: {"value": "window"})
        booked, chartered, told, forecast = await returns(
            client,
            ("book", {"city": "Oslo"}),
            ("charter", {"city": "Rome"}),
            ("tell", {}),
            ("weather", {"city": "Oslo"}),
        )
    assert booked.content == "Booked Oslo, window."
    assert chartered.content == "A plane to Rome."
    assert told.content == "Once\nupon"
    assert forecast.content == {"city": "Oslo", "days": 1}


async def test_the_test_model_calls_every_tool() -> None:
    server = travel_server()[0]
    toolset: AntiphonToolset[None] = AntiphonToolset(
        Client(server), select=lambda tool: tool.name in ("weather", "tell"), id="travel"
    )
    model = TestModel()
    run = await Agent(model, toolsets=[toolset]).run("Go.")
    assert run.output == '{"weather":{"city":"a","days":1},"tell":"Once\\nupon"}'
    parameters = model.last_model_request_parameters
    assert parameters is not None
    (weather, _) = parameters.function_tools
    assert weather.description == "Forecast the weather."
    assert weather.parameters_json_schema["required"] == ["city"]
    assert toolset.id == "travel"


async def test_failures_are_told_to_the_model() -> None:
    failed, refused = await returns(
        Client(travel_server()[0]), ("weather", {"city": "Atlantis"}), ("weather", {"days": 1}), max_retries=3
    )
    assert failed.outcome == "failed"
    assert "Atlantis is under water." in str(failed.content)
    assert "city" in str(refused.content)


async def test_images_come_as_binary_content_and_long_data_is_cut() -> None:
    (drawn,) = await returns(Client(travel_server()[0]), ("picture", {}))
    (cut,) = await returns(Client(travel_server()[0]), ("weather", {"city": "Oslo"}), max_characters=9)
    assert cut.content.startswith('{"city":"\n[The text is longer')
    text, image, link = drawn.content
    assert text == "A map:"
    assert isinstance(image, BinaryContent)
    assert (image.data, image.media_type) == (base64.b64decode(PIXEL), "image/gif")
    assert "file:///map.txt" in link


async def test_a_group_and_names_that_apis_do_not_accept() -> None:
    server = Server("files")

    @server.tool(name="read.all")
    async def read() -> str:
        return "all"

    group = ClientGroup({"files": server})
    (found,) = await returns(group, ("files_read_all", {}))
    assert found.content == "all"
    async with group:
        (found,) = await returns(group, ("files_read_all", {}))
        assert found.content == "all"
        assert group.is_open


async def test_an_open_client_stays_open_and_instructions_are_passed_on_if_wanted() -> None:
    async with Client(travel_server()[0]) as client:
        model = calling()
        agent = Agent(model, toolsets=[AntiphonToolset(client, include_instructions=True)])
        request = (await agent.run("Go.")).all_messages()[0]
        assert isinstance(request, ModelRequest)
        assert request.instructions == "Book trips."
        silent = (await Agent(calling(), toolsets=[AntiphonToolset(client)]).run("Go.")).all_messages()[0]
        assert isinstance(silent, ModelRequest)
        assert silent.instructions is None
        assert len(await client.tools()) == 5


async def test_runs_at_the_same_time_share_one_connection() -> None:
    opened: list[asyncio.Task[Any] | None] = []
    closed: list[asyncio.Task[Any] | None] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        opened.append(asyncio.current_task())
        yield
        closed.append(asyncio.current_task())

    server, both = Server("slow", lifespan=lifespan), asyncio.Barrier(2)

    @server.tool
    async def meet() -> str:
        await both.wait()
        return "met"

    toolset: AntiphonToolset[None] = AntiphonToolset(Client(server))
    make: Callable[[], Agent] = lambda: Agent(calling(("meet", {})), toolsets=[toolset])  # noqa: E731
    await asyncio.gather(make().run("Go."), make().run("Go."))
    assert len(opened) == 1
    assert opened == closed


def test_runs_in_other_event_loops_connect_again() -> None:
    toolset: AntiphonToolset[None] = AntiphonToolset(Client(travel_server()[0]))
    for _ in range(2):
        agent = Agent(calling(("weather", {"city": "Oslo"})), toolsets=[toolset])
        assert asyncio.run(agent.run("Go.")).output == "done"


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.delitem(sys.modules, "antiphon.agents.pydantic_ai")
    with pytest.raises(ImportError, match=r"pip install 'antiphon\[pydantic-ai\]'"):
        importlib.import_module("antiphon.agents.pydantic_ai")


async def test_keys_of_arguments_are_mapped_back() -> None:
    (found,) = await returns(Client(filter_server()), ("find", {"filter_id_": "7"}))
    assert found.content == "7"


async def test_an_image_that_is_not_base64_does_not_stop_the_run() -> None:
    server = Server("one")

    @server.tool
    async def draw() -> Result:
        return Result([Image("A", "image/png")])

    (drawn,) = await returns(Client(server), ("draw", {}))
    assert drawn.content == "[An image of the type image/png is not shown: its data is not base64.]"


async def test_a_server_that_cannot_be_reached_is_an_error_of_the_run() -> None:
    with pytest.raises(Unreachable, match="Is the server running"):
        await returns(Client("http://127.0.0.1:9/mcp"))
