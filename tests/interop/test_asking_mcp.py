"""The official Python client, and FastMCP's, answer what our server asks, on both versions and transports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import fastmcp
import mcp
import mcp_types as types
import pytest
from fastmcp.client.transports import StdioTransport

from tests.interop import asking
from tests.interop.asking import ANSWERS, ENDINGS, EVERYTHING, LOGIN, ROOT, Ending
from tests.support.process import ServerProcess, environment, started

SCRIPT = Path(asking.__file__)
OWN: dict[str, Ending] = {**ENDINGS, "in_a_thread": ENDINGS["one_round"], "everything": EVERYTHING}


class Person:
    """Answers as the tables say, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        answer = ANSWERS[params.message]
        if isinstance(answer, str):
            return types.ElicitResult.model_validate({"action": answer})
        if isinstance(params, types.ElicitRequestURLParams):
            assert params.url == LOGIN
            return types.ElicitResult(action="accept")
        assert set(answer) <= set(params.requested_schema["properties"])
        return types.ElicitResult(action="accept", content=answer)

    async def elicit_for_fastmcp(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        return await self.elicit(context, params)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        self.asked.append("sampling")
        said = params.messages[0].content
        return types.CreateMessageResult(role="assistant", content=said, model="parrot")  # type: ignore[arg-type]

    async def sample_for_fastmcp(self, messages: Any, params: Any, context: Any) -> Any:
        return await self.sample(context, params)

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])  # type: ignore[arg-type]

    async def roots_for_fastmcp(self, context: Any) -> Any:
        return (await self.roots(context)).roots


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the side effects of the server go to."""
    return tmp_path_factory.mktemp("effects") / "effects"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, effects: Path) -> Iterator[ServerProcess]:
    """The server, over HTTP."""
    directory = tmp_path_factory.mktemp("asking")
    with started(SCRIPT, directory, env={"ASKING_EFFECTS": str(effects)}) as server:
        yield server
        assert "Traceback" not in server.log


@pytest.fixture(scope="module", params=["http", "stdio"])
def way(request: pytest.FixtureRequest) -> str:
    """How the client reaches the server."""
    return str(request.param)


@pytest.fixture(scope="module", params=["legacy", "auto"], ids=["2025-11-25", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    """Which kind of version it speaks."""
    return str(request.param)


@pytest.fixture(scope="module", params=["mcp", "fastmcp"])
def library(request: pytest.FixtureRequest) -> str:
    """Whose client it is."""
    return str(request.param)


@pytest.fixture
def person() -> Person:
    """Who answers."""
    return Person()


@pytest.fixture
def client(
    library: str, way: str, mode: str, person: Person, served: ServerProcess, effects: Path
) -> AbstractAsyncContextManager[Any]:
    """A client, to be opened in the test's own task."""
    command = [str(SCRIPT), "--stdio"]
    env = environment({"ASKING_EFFECTS": str(effects)})
    target: Any
    if library == "mcp":
        target = mcp.StdioServerParameters(command=sys.executable, args=command, env=env)
        return mcp.Client(
            served.url if way == "http" else target,
            mode=mode,
            read_timeout_seconds=20,
            elicitation_callback=person.elicit,
            sampling_callback=person.sample,
            list_roots_callback=person.roots,
        )
    target = StdioTransport(sys.executable, command, env=env, keep_alive=False)
    return fastmcp.Client(
        served.url if way == "http" else target,
        mode=mode,
        timeout=20,
        elicitation_handler=person.elicit_for_fastmcp,
        sampling_handler=person.sample_for_fastmcp,
        roots=person.roots_for_fastmcp,
    )


def lines(file: Path) -> list[str]:
    """What has happened so far."""
    return file.read_text().split() if file.exists() else []


async def call(client: Any, tool: str) -> Any:
    """The result of a call, also where it failed."""
    if isinstance(client, fastmcp.Client):
        return await client.call_tool(tool, {}, raise_on_error=False)
    return await client.call_tool(tool, {})


@pytest.mark.parametrize("tool", OWN)
async def test_a_call_ends_as_it_should(
    tool: str, client: AbstractAsyncContextManager[Any], person: Person
) -> None:
    ending = OWN[tool]
    async with client as connected:
        result = await call(connected, tool)
    assert sorted(person.asked) == sorted(ending.asked)
    assert result.is_error == ending.is_error
    assert ending.text in result.content[0].text
    if ending.is_error:
        assert "Please?" in result.content[0].text


async def test_what_is_done_between_two_rounds_is_done_once(
    client: AbstractAsyncContextManager[Any], person: Person, effects: Path
) -> None:
    before = lines(effects)
    async with client as connected:
        await call(connected, "two_rounds")
    assert person.asked == ["Name?", "Surname?"]
    assert lines(effects)[len(before) :] == ["before", "between", "after"]


async def test_prompts_and_resources_ask_too(
    client: AbstractAsyncContextManager[Any], person: Person
) -> None:
    async with client as connected:
        prompt = await connected.get_prompt("story", {})
        read = await connected.read_resource("story://London")
    contents = read if isinstance(read, list) else read.contents
    assert prompt.messages[0].content.text == "Tell of Ada."
    assert contents[0].text == "Ada in London"
    assert person.asked == ["Name?", "Name?"]


async def test_many_calls_that_ask_at_the_same_time_are_kept_apart(
    client: AbstractAsyncContextManager[Any], person: Person
) -> None:
    async with client as connected:
        tools = ["one_round", "two_rounds", "at_once", "form"] * 5
        results = await asyncio.gather(*(call(connected, tool) for tool in tools))
    assert [result.content[0].text for result in results] == [ENDINGS[tool].text for tool in tools]


async def test_a_client_that_cannot_answer_is_not_asked(way: str, mode: str, served: ServerProcess) -> None:
    command = [str(SCRIPT), "--stdio"]
    target: Any = mcp.StdioServerParameters(command=sys.executable, args=command, env=environment())
    async with mcp.Client(
        served.url if way == "http" else target, mode=mode, read_timeout_seconds=20
    ) as client:
        if mode == "legacy":
            result = await client.call_tool("one_round", {})
            assert result.is_error
            assert "elicitation" in result.content[0].text  # type: ignore[union-attr]
        else:
            with pytest.raises(mcp.MCPError) as refused:
                await client.call_tool("one_round", {})
            assert refused.value.error.code == -32021


async def test_by_hand_round_by_round(served: ServerProcess, person: Person) -> None:
    # The capability is declared by having a callback, which is never called here.
    async with mcp.Client(served.url, mode="2026-07-28", elicitation_callback=person.elicit) as client:
        first = await client.session.call_tool("two_rounds", {}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert first.request_state is not None
        (key,) = first.input_requests or {}
        answer: Any = {key: types.ElicitResult(action="accept", content={"name": "Ada"})}
        second = await client.session.call_tool(
            "two_rounds",
            {},
            input_responses=answer,
            request_state=first.request_state,
            allow_input_required=True,
        )
        assert isinstance(second, types.InputRequiredResult)
        with pytest.raises(mcp.MCPError) as refused:
            await client.session.call_tool("two_rounds", {}, request_state="x" + first.request_state)
        assert refused.value.error.code == -32602
    assert person.asked == []
