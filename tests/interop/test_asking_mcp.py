"""The official Python client, and FastMCP's, answer what our server asks, on both versions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastmcp
import mcp
import mcp_types as types
import pytest
import pytest_asyncio

from tests.interop import asking
from tests.interop.asking import ANSWERS, ENDINGS, EVERYTHING, LOGIN, ROOT, Ending
from tests.support.polling import DEADLINE
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


@dataclass(frozen=True)
class Told:
    """What a client was given in one conversation, and what its person was asked on the way."""

    calls: dict[str, tuple[Any, list[str]]]
    effects: list[str]
    prompt: tuple[Any, list[str]]
    read: tuple[Any, list[str]]
    many: list[str]


MODES = {"2025-11-25": "legacy", "2026-07-28": "auto"}
WAYS = [("mcp", "http"), ("mcp", "stdio"), ("fastmcp", "http")]
"""Whose client it is, and how it reaches the server: FastMCP's standard streams are the official ones."""
AT_ONCE = ["one_round", "two_rounds", "at_once", "form"] * 5


def connect(library: str, way: str, mode: str, person: Person, url: str, effects: Path) -> Any:
    """Return a client, which has to be opened."""
    if library == "fastmcp":
        return fastmcp.Client(
            url,
            mode=mode,
            timeout=DEADLINE,
            elicitation_handler=person.elicit_for_fastmcp,
            sampling_handler=person.sample_for_fastmcp,
            roots=person.roots_for_fastmcp,
        )
    env = environment({"ASKING_EFFECTS": str(effects)})
    return mcp.Client(
        url
        if way == "http"
        else mcp.StdioServerParameters(command=sys.executable, args=[str(SCRIPT), "--stdio"], env=env),
        mode=mode,
        read_timeout_seconds=DEADLINE,
        elicitation_callback=person.elicit,
        sampling_callback=person.sample,
        list_roots_callback=person.roots,
    )


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[(*way, version) for way in WAYS for version in MODES],
    ids="-".join,
)
async def told(request: pytest.FixtureRequest, served: ServerProcess, effects: Path) -> Told:
    """Use everything that the server offers over one connection."""
    library, way, version = request.param
    person = Person()

    async def attempt(use: Awaitable[Any]) -> tuple[Any, list[str]]:
        person.asked = []
        return await use, list(person.asked)

    async with connect(library, way, MODES[version], person, served.url, effects) as client:
        effects.unlink(missing_ok=True)
        calls = {"two_rounds": await attempt(call(client, "two_rounds"))}
        happened = effects.read_text().split()
        calls |= {tool: await attempt(call(client, tool)) for tool in OWN if tool != "two_rounds"}
        return Told(
            calls,
            happened,
            prompt=await attempt(client.get_prompt("story", {})),
            read=await attempt(client.read_resource("story://London")),
            many=[
                result.content[0].text
                for result in await asyncio.gather(*(call(client, tool) for tool in AT_ONCE))
            ],
        )


async def call(client: Any, tool: str) -> Any:
    """The result of a call, also where it failed."""
    if isinstance(client, fastmcp.Client):
        return await client.call_tool(tool, {}, raise_on_error=False)
    return await client.call_tool(tool, {})


def test_a_call_ends_as_it_should(told: Told, subtests: pytest.Subtests) -> None:
    for tool, ending in OWN.items():
        with subtests.test(tool):
            result, asked = told.calls[tool]
            assert sorted(asked) == sorted(ending.asked)
            assert result.is_error == ending.is_error
            assert ending.text in result.content[0].text
            if ending.is_error:
                assert "Please?" in result.content[0].text


def test_what_is_done_between_two_rounds_is_done_once(told: Told) -> None:
    assert told.effects == ["before", "between", "after"]


def test_prompts_and_resources_ask_too(told: Told) -> None:
    prompt, asked_for_the_prompt = told.prompt
    read, asked_for_the_resource = told.read
    contents = read if isinstance(read, list) else read.contents
    assert prompt.messages[0].content.text == "Tell of Ada."
    assert contents[0].text == "Ada in London"
    assert asked_for_the_prompt == asked_for_the_resource == ["Name?"]


def test_many_calls_that_ask_at_the_same_time_are_kept_apart(told: Told) -> None:
    assert told.many == [ENDINGS[tool].text for tool in AT_ONCE]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
async def test_a_client_that_cannot_answer_is_not_asked(mode: str, served: ServerProcess) -> None:
    async with mcp.Client(served.url, mode=mode, read_timeout_seconds=DEADLINE) as client:
        if mode == "legacy":
            result = await client.call_tool("one_round", {})
            assert result.is_error
            assert "elicitation" in result.content[0].text  # type: ignore[union-attr]
        else:
            with pytest.raises(mcp.MCPError) as refused:
                await client.call_tool("one_round", {})
            assert refused.value.error.code == -32021


async def test_by_hand_round_by_round(served: ServerProcess) -> None:
    person = Person()
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
