"""Servers of every generation, unchanged: their lists, a question whose function runs once, and a task."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Failure, RequestError
from antiphon.model.catalog import ToolDefinition
from antiphon.model.notification import ListChanged, Log, Progress
from tests.adoption.generations import (
    GENERATIONS,
    VERSIONS,
    Adopted,
    Generation,
    adopted,
    by_itself,
)
from tests.cli.command import plain_environment
from tests.support.polling import DEADLINE


def _only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("generation", names, indirect=True, scope="module")


high_level = _only(*(name for name, each in GENERATIONS.items() if not each.is_program))
of_fastmcp = _only("fastmcp-2", "fastmcp-3", "fastmcp-4")
of_mcp_1 = _only("mcp-1-lowlevel")


@pytest.fixture(scope="module", params=list(GENERATIONS))
def generation(request: pytest.FixtureRequest) -> Generation:
    return GENERATIONS[request.param]


@pytest.fixture(scope="module")
def server(generation: Generation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    with adopted(generation, tmp_path_factory.mktemp("adopted")) as served:
        yield served


async def test_its_lists_are_those_that_it_has_served_by_itself(
    generation: Generation, server: Adopted
) -> None:
    async with by_itself(generation) as own:
        tools = [tool for tool in await own.tools() if tool.name != "order_later"]
        name, instructions = own.server, own.instructions
        has_more = not generation.is_program
        more = (await own.resources(), await own.templates(), await own.prompts()) if has_more else ()
    for version in VERSIONS:
        async with server.client(version) as client:
            offered = [tool for tool in await client.tools() if tool.name != "order_later"]
            if version == "2024-11-05":  # its tools have no more than these
                assert [_basics(tool) for tool in offered] == [_basics(tool) for tool in tools]
            else:
                assert offered == tools
            assert client.server == name
            assert client.instructions == instructions
            if has_more:
                assert (await client.resources(), await client.templates(), await client.prompts()) == more


def _basics(tool: ToolDefinition) -> tuple[str, str | None, dict[str, Any]]:
    return tool.name, tool.description, tool.input_schema


@pytest.mark.parametrize("version", VERSIONS)
async def test_its_tool_asks_and_runs_once(server: Adopted, version: str) -> None:
    progress: list[Progress] = []
    async with server.client(version, on_progress=progress.append) as client:
        result = await client.call("order", {"what": "tea"})
        assert result.text.startswith("3 tea")
    assert server.runs == 1
    assert [each.message for each in progress] == ["asking"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_that_cannot_be_asked_gets_a_failure_that_says_so(
    server: Adopted, version: str
) -> None:
    async with Client(server.url, protocol=version) as client:
        try:
            message = (await client.call("order", {"what": "tea"})).text
        except Exception as error:  # a protocol error, or a failed tool, as the library has it
            message = str(error)
    assert "elicitation" in message.lower()
    assert server.runs == 1


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_its_tool_runs_as_a_task_that_is_redeemed(server: Adopted, version: str) -> None:
    async with server.client(version) as client:
        promise = await client.submit("order_later", {"what": "coffee"})
        result = await promise.result()
        assert result.text.startswith("3 coffee")
    assert server.runs == 1


@of_mcp_1
async def test_a_tool_that_it_declares_as_a_task_is_one(server: Adopted) -> None:
    async with server.client("2025-11-25") as client:
        promise = await client.submit("order_often", {"what": "coffee"})
        assert (await promise.result()).text.startswith("3 coffee")
    assert server.runs == 1


async def test_its_failures_are_its_own(generation: Generation, server: Adopted) -> None:
    async def failed(client: Client) -> str:
        try:
            return (await client.call("fail")).text
        except Exception as error:
            return str(error)

    async with by_itself(generation) as own:
        expected = await failed(own)
    async with server.client(generation.newest) as client:
        assert await failed(client) == expected


@high_level
@pytest.mark.parametrize("version", VERSIONS)
async def test_its_resources_and_prompts_are_read(server: Adopted, version: str) -> None:
    async with server.client(version) as client:
        [terms] = (await client.read("orders://terms")).contents
        [item] = (await client.read("orders://item/7")).contents
        assert (terms.text, terms.mime_type) == ("# Terms", "text/markdown")  # type: ignore[union-attr]
        assert item.text == "item 7"  # type: ignore[union-attr]
        with pytest.raises(RequestError):
            await client.read("orders://nosuch")
        [message] = (await client.prompt("greet", {"name": "Ada"})).messages
        assert message.content.text == "Hello Ada"  # type: ignore[union-attr]
        with pytest.raises(RequestError):
            await client.prompt("nosuch")


@high_level
@pytest.mark.parametrize("version", VERSIONS)
async def test_its_lifespan_and_results_are_its_own(server: Adopted, version: str) -> None:
    async with server.client(version) as client:
        assert (await client.call("open_shop")).text.startswith("corner")
        added = await client.call("add", {"a": 1, "b": 2})
        assert added.text.startswith("3")
        assert version == "2024-11-05" or added.data == {"result": 3}
        with pytest.raises((Failure, RequestError)):
            await client.call("add", {"a": "x"})
        with pytest.raises((Failure, RequestError), match="(?i)unknown tool"):
            await client.call("nosuch")


@high_level
async def test_its_messages_reach_the_caller(server: Adopted) -> None:
    logged: list[Log] = []
    async with server.client("2026-07-28", log_level="info", on_log=logged.append) as client:
        await client.call("order", {"what": "tea"})
    assert "asking" in str(logged[0].data)


@of_fastmcp
async def test_its_middleware_and_session_state_work(generation: Generation, server: Adopted) -> None:
    async with server.client("2025-11-25") as client:
        assert (await client.call("shout", {"text": "tea"})).text == "TEA"
        counted = [(await client.call("count")).data["result"] for _ in range(2)]
        assert counted == COUNTS[generation.environment]
    async with server.client("2025-11-25") as client:
        assert (await client.call("count")).data["result"] == 1


COUNTS = {"fastmcp-2": [1, 1], "fastmcp-3": [1, 2], None: [1, 2]}
"""What the tool `count` returns in one session: the state of fastmcp 2 is that of one request."""


@high_level
async def test_a_tool_that_it_adds_is_listed_and_callers_are_notified(server: Adopted) -> None:
    async with server.client("2026-07-28") as client, client.listen() as changes:
        await client.call("grow")
        async with asyncio.timeout(DEADLINE):
            async for change in changes:
                assert change == ListChanged("tools")
                break
        assert "grown" in {tool.name for tool in await client.tools()}
        assert (await client.call("grown")).text == "grown"


async def test_several_processes_serve_it_and_a_worker_runs_its_tasks(tmp_path: Path) -> None:
    generation, store = GENERATIONS["mcp-2-mcpserver"], ("--store", f"sqlite:///{tmp_path / 'tasks.db'}")
    worker = [generation.python, "-m", "antiphon", "worker", generation.path, "--task", "order_later", *store]
    environment = plain_environment({"RUNS": str(tmp_path / "runs.txt")})
    with (
        adopted(generation, tmp_path, "--workers", "2", "--no-worker", *store) as server,
        subprocess.Popen(
            worker, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as running,
    ):
        try:
            for _ in range(5):  # each request may reach another process
                async with server.client("2026-07-28") as client:
                    assert (await client.call("order", {"what": "tea"})).text == "3 tea"
                    assert server.runs == 1
            async with server.client("2026-07-28") as client:
                promise = await client.submit("order_later", {"what": "coffee"})
                assert (await promise.result()).text == "3 coffee"
            assert server.runs == 1
        finally:
            running.terminate()
