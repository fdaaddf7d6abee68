"""Our client answers what the servers of others ask, on both versions, over HTTP and standard streams."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Client, Failure, InputRequired, RequestError
from antiphon.client import Elicitation
from tests.interop.asking import ANSWERS, ENDINGS, LOGIN, ROOT
from tests.support.polling import DEADLINE
from tests.support.process import environment, started

PEERS = Path(__file__).parent.parent / "peers"
MODERN, SESSIONS = "2026-07-28", "2025-11-25"

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Person:
    """Answers as the tables say, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, question: Elicitation) -> Any:
        self.asked.append(question.message)
        if question.mode == "url":
            assert question.url == LOGIN
        return ANSWERS[question.message]

    async def sample(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append("sampling")
        return {"role": "assistant", "content": params["messages"][0]["content"], "model": "parrot"}

    async def roots(self) -> list[str]:
        self.asked.append("roots")
        return [ROOT]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts a peer's server over HTTP, where it does not run yet, and gives its address."""
    running: dict[str, str] = {}
    with ExitStack() as stack:

        def start(peer: str) -> str:
            if peer not in running:
                directory = tmp_path_factory.mktemp(peer)
                script = PEERS / f"{peer}_asking.py"
                running[peer] = stack.enter_context(started(script, directory, within=60)).url
            return running[peer]

        yield start


@pytest.fixture(
    scope="module",
    params=["mcp-http", "mcp-stdio", "fastmcp-http", "typescript-http", "typescript-stdio"],
)
def where(request: pytest.FixtureRequest) -> list[str]:
    """Whose server it is, and how it is reached: the standard streams of FastMCP's are the official ones."""
    return str(request.param).split("-")


@pytest.fixture(scope="module")
def target(where: list[str], serve: Callable[[str], str]) -> Any:
    """The address of the server, or the command that starts it."""
    peer, way = where
    if way == "http":
        return serve(peer)
    return [sys.executable, "-W", "ignore", str(PEERS / f"{peer}_asking.py"), "stdio"]


@pytest.fixture(scope="module")
def person() -> Person:
    """Who answers."""
    return Person()


@pytest_asyncio.fixture(params=[MODERN, SESSIONS], scope="module", loop_scope="module")
async def client(target: Any, person: Person, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Our client, connected."""
    async with Client(
        target,
        protocol=request.param,
        env=_environment(target),
        timeout=DEADLINE,
        elicit=person.elicit,
        sample=person.sample,
        roots=person.roots,
    ) as connected:
        assert connected.version == request.param
        yield connected


def _environment(target: Any) -> dict[str, str] | None:
    """Return the environment of a server that the client starts."""
    return None if isinstance(target, str) else environment()


async def test_what_they_offer_is_listed(client: Client) -> None:
    assert set(ENDINGS) <= {tool.name for tool in await client.tools()}
    assert "story" in {prompt.name for prompt in await client.prompts()}
    addresses = [resource.uri for resource in await client.resources()]
    addresses += [template.uri_template for template in await client.templates()]
    assert any(address.startswith("story://") for address in addresses)


async def check_endings(client: Client, person: Person, subtests: pytest.Subtests) -> None:
    """Call every tool of the table, and check how its call ends and what the person was asked."""
    for tool, ending in ENDINGS.items():
        with subtests.test(tool):
            person.asked.clear()
            result = await client.call(tool, check=False)
            assert result.text.startswith(ending.text), result
            assert result.is_error == ending.is_error
            assert sorted(person.asked) == sorted(ending.asked)


async def test_a_call_ends_as_it_should(client: Client, person: Person, subtests: pytest.Subtests) -> None:
    await check_endings(client, person, subtests)


async def test_a_failure_after_a_no_is_raised(client: Client) -> None:
    with pytest.raises(Failure, match="decline"):
        await client.call("insist")


async def test_prompts_and_resources_are_driven_too(client: Client, where: list[str], person: Person) -> None:
    person.asked.clear()
    if where[0] != "typescript" and client.version == SESSIONS:  # the Python ones ask on 2026-07-28 only
        with pytest.raises(RequestError):
            await client.prompt("story")
        assert person.asked == []
        return
    filled = await client.prompt("story")
    read = await client.read("story://London")
    assert filled.messages[0].content.text == "Tell of Ada."  # type: ignore[union-attr]
    assert read.contents[0].text == "Ada in London"  # type: ignore[union-attr]
    assert person.asked == ["Name?", "Name?"]


async def test_many_calls_that_ask_at_the_same_time_are_kept_apart(client: Client) -> None:
    tools = ["one_round", "two_rounds", "at_once", "form", "log_in"] * 4
    results = await asyncio.gather(*(client.call(tool) for tool in tools))
    assert [result.text for result in results] == [ENDINGS[tool].text for tool in tools]


async def test_round_by_round_and_by_another_client_in_between(target: Any, person: Person) -> None:
    """Over HTTP, one client asks and another answers; a server on standard streams is one client's own."""
    options: dict[str, Any] = {"protocol": MODERN, "env": _environment(target), "elicit": person.elicit}
    person.asked.clear()
    async with Client(target, **options) as first:
        asked = await first.call_once("two_rounds")
        assert isinstance(asked, InputRequired)
        (key,) = asked.questions
        again = await first.call_once("two_rounds", resume=asked, answers={key: {"name": "Ada"}})
        assert isinstance(again, InputRequired)
        (key,) = again.questions
        if not isinstance(target, str):
            last = await first.call_once("two_rounds", resume=again, answers={key: {"name": "King"}})
    if isinstance(target, str):
        async with Client(target, **options) as second:
            last = await second.call_once("two_rounds", resume=again, answers={key: {"name": "King"}})
    assert last.text == "Hello, Ada King!"
    assert person.asked == []
