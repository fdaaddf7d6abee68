"""Every kind of question, of servers of every kind, through a gateway, to callers of both eras."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, InputRequired, Server
from antiphon.gateway import upstream
from tests.interop.asking import ENDINGS, EVERYTHING
from tests.interop.test_asking_servers import Person
from tests.support.process import environment, started

TESTS = Path(__file__).parent.parent
SCRIPTS = {
    "returning": Path(__file__).with_name("returning_mcp.py"),
    "own": TESTS / "interop" / "asking.py",
    "mcp": TESTS / "peers" / "mcp_asking.py",
    "fastmcp": TESTS / "peers" / "fastmcp_asking.py",
}
SECRET = "a secret that all gateways of these tests have"


def answering(person: Person) -> dict[str, Any]:
    """Return the callbacks with which a client lets a person answer."""
    return {"elicit": person.elicit, "sample": person.sample, "roots": person.roots}


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts a server over HTTP, where it does not run yet, and gives its address."""
    running: dict[str, str] = {}
    with ExitStack() as stack:

        def start(name: str) -> str:
            if name not in running:
                directory = tmp_path_factory.mktemp(name)
                running[name] = stack.enter_context(started(SCRIPTS[name], directory)).url
            return running[name]

        yield start


@asynccontextmanager
async def gateway_to(target: Any, **options: Any) -> AsyncIterator[Server]:
    server = Server("gateway", secrets=[SECRET])
    server.mount("peer", target, prefix=False, **options)
    async with server.running():
        yield server


async def check_endings(server: Server, protocol: str) -> None:
    for name, ending in ENDINGS.items():
        person = Person()
        async with Client(server, protocol=protocol, **answering(person)) as client:
            result = await client.call(name, check=False)
        assert (result.is_error, sorted(person.asked)) == (ending.is_error, sorted(ending.asked)), name
        if not ending.is_error:
            assert result.content[0].text == ending.text, name  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("peer", ["own", "mcp", "fastmcp"])
async def test_questions_of_a_server_over_http(serve: Callable[[str], str], peer: str, protocol: str) -> None:
    async with gateway_to(serve(peer)) as server:
        await check_endings(server, protocol)


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_questions_of_a_server_in_the_newest_version_over_stdio(protocol: str) -> None:
    command = [sys.executable, str(SCRIPTS["own"]), "--stdio"]
    async with gateway_to(command, env=environment(), protocol="2026-07-28") as server:
        await check_endings(server, protocol)


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_prompts_and_resources_ask_too(serve: Callable[[str], str], protocol: str) -> None:
    options = answering(Person())
    async with gateway_to(serve("own")) as server, Client(server, protocol=protocol, **options) as client:
        filled = await client.prompt("story")
        assert filled.messages[0].content.text == "Tell of Ada."  # type: ignore[union-attr]
        read = await client.read("story://london")
        assert read.contents[0].text == "Ada in london"  # type: ignore[union-attr]
        assert (await client.call("everything")).text == EVERYTHING.text


async def test_a_server_that_returns_its_questions_is_continued_by_another_gateway(
    serve: Callable[[str], str],
) -> None:
    options = answering(Person())
    async with gateway_to(serve("own")) as first, Client(first, **options) as client:
        asked = await client.call_once("one_round")
        assert isinstance(asked, InputRequired)
    async with gateway_to(serve("own")) as second, Client(second, **options) as client:
        (key,) = asked.questions
        done = await client.call_once("one_round", resume=asked, answers={key: {"name": "Ada"}})
        assert not isinstance(done, InputRequired)
        assert done.text == "Hello, Ada!"  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_server_whose_tools_ask_in_both_ways(serve: Callable[[str], str], protocol: str) -> None:
    options = answering(Person())
    async with (
        gateway_to(serve("returning")) as server,
        Client(server, protocol=protocol, **options) as client,
    ):
        assert (await client.call("waits")).content[0].text == "Ada"  # type: ignore[union-attr]
        for _ in range(2):
            text = (await client.call("returns")).content[0].text  # type: ignore[union-attr]
            assert text.startswith("Ada in run")
        if protocol == "2026-07-28":
            asked = await client.call_once("returns")
            assert isinstance(asked, InputRequired)
            assert list(asked.questions) == ["who"]


async def test_tools_that_return_their_questions_are_forgotten_and_found_again(
    serve: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "MAX_RETURNING", 1)
    async with (
        gateway_to(serve("returning")) as server,
        Client(server, protocol="2025-11-25", **answering(Person())) as client,
    ):
        runs = []
        for tool in ("returns", "returns_too") * 2:
            text = (await client.call(tool)).content[0].text  # type: ignore[union-attr]
            runs.append(int(text.removeprefix("Ada in run ")))
    # Each call finds out again that the tool returns its question, then asks, then has the answer.
    assert [later - earlier for earlier, later in pairwise(runs)] == [3, 3, 3]
