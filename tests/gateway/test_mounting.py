"""`Server.mount` of a server in another process that speaks an older version and asks on the connection."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Client, DefinitionError, Result, Server
from tests.support.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSIONS = ["2026-07-28", "2025-11-25", "2024-11-05"]
PERSON: dict[str, Any] = {
    "elicit": lambda question: {"size": 3},
    "sample": lambda params: "Hm.",
    "roots": ["file:///x"],
}


async def settled(call: Callable[[], Awaitable[Result]], fits: Callable[[Result], bool]) -> None:
    """Repeat a call until its result fits; fail after a deadline."""

    async def has_settled() -> bool:
        return fits(await call())

    await until(has_settled)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gateway(asking: list[str]) -> AsyncIterator[Server]:
    server = Server("gateway", secrets=["a secret of these tests"])
    server.mount("shop", asking)
    async with server.running():
        yield server


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_its_tools_have_a_prefix_and_are_listed_as_they_are(
    gateway: Server, asking: list[str], protocol: str
) -> None:
    async with Client(asking) as direct, Client(gateway, protocol=protocol) as client:
        own = {tool.name: tool for tool in await direct.tools()}
        offered = {tool.name: tool for tool in await client.tools()}
    assert list(offered) == [f"shop_{name}" for name in own]
    for name, tool in own.items():
        found = offered[f"shop_{name}"]
        assert (found.input_schema, found.description) == (tool.input_schema, tool.description)


@pytest.mark.parametrize("protocol", [*VERSIONS[:2], "2025-06-18"])
async def test_its_questions_reach_callers_of_every_version_and_its_function_runs_once(
    gateway: Server, protocol: str
) -> None:
    async with Client(gateway, protocol=protocol, **PERSON) as client:
        before = (await client.call("shop_order", what="tea")).text
        after = (await client.call("shop_order", what="tea")).text
        runs = [int(text.rpartition(" ")[2]) for text in (before, after)]
        assert before.startswith("3 x tea in run")
        assert runs[1] == runs[0] + 1
        assert (await client.call("shop_think")).text == "unknown says Hm."
        assert (await client.call("shop_folders")).text == "file:///x"


async def test_a_refusal_reaches_the_server(gateway: Server) -> None:
    async with Client(gateway, elicit=lambda question: "decline") as client:
        assert (await client.call("shop_order", what="tea")).text.startswith("decline in run")


async def test_a_caller_that_cannot_answer_gets_the_error_of_the_tool(gateway: Server) -> None:
    async with Client(gateway) as client:
        asked = await client.call("shop_order", what="tea", check=False)
        assert asked.is_error
        assert "declared no capability" in asked.text
        assert (await client.call("shop_folders")).text == "none"


async def test_two_callers_are_asked_their_own_questions_at_once(gateway: Server) -> None:
    both = asyncio.Barrier(2)
    asked: dict[str, list[str]] = {"tea": [], "rye": []}

    async def order(what: str) -> str:
        async def elicit(question: Any) -> dict[str, int]:
            asked[what].append(question.message)
            await both.wait()
            return {"size": len(what)}

        async with Client(gateway, elicit=elicit) as client:
            return (await client.call("shop_order", what=what)).text

    async with asyncio.timeout(60):
        texts = await asyncio.gather(order("tea"), order("rye"))
    assert [text[:7] for text in texts] == ["3 x tea", "3 x rye"]
    assert asked == {what: [f"How many of {what}?"] for what in asked}


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_progress_resources_prompts_and_completions(gateway: Server, protocol: str) -> None:
    seen: list[float] = []
    async with Client(gateway, protocol=protocol) as client:
        counted = await client.call("shop_count", to=3, on_progress=lambda each: seen.append(each.progress))
        assert counted.content[0].text == "3"  # type: ignore[union-attr]
        assert seen == [1, 2, 3]
        assert [each.uri for each in await client.resources()] == ["notes://today"]
        assert [each.uri_template for each in await client.templates()] == ["notes://of/{day}"]
        assert (await client.read("notes://today")).contents[0].text == "Nothing."  # type: ignore[union-attr]
        read = await client.read("notes://of/monday")
        assert read.contents[0].text == "Something on monday."  # type: ignore[union-attr]
        assert [each.name for each in await client.prompts()] == ["shop_greet"]
        filled = await client.prompt("shop_greet", {"name": "Ann"})
        assert filled.messages[0].content.text == "Hello Ann!"  # type: ignore[union-attr]
        if protocol != "2024-11-05":
            assert (await client.complete("shop_greet", "name", "A")).values == ("name=A!",)
            assert (await client.complete("notes://of/{day}", "day", "m")).values == ("day=m!",)


async def test_a_tool_as_a_task_asks_its_owner(asking: list[str]) -> None:
    server = Server("gateway")
    server.mount("shop", asking, tasks=["order"])
    async with server.running(), Client(server, **PERSON) as client:
        assert server.task_tools == ("shop_order",)
        handle = await client.submit("shop_order", what="tea")
        assert handle.id
        assert (await handle.result(timeout=60)).text == "3 x tea in run 1"


async def test_a_cancelled_call_is_cancelled_there_and_the_next_one_works(
    gateway: Server, tmp_path: Path
) -> None:
    begun, cancelled = asyncio.Event(), tmp_path / "cancelled"
    async with Client(gateway, **PERSON) as client:
        process = (await client.call("shop_pid")).text
        call = asyncio.create_task(
            client.call("shop_linger", marker=str(cancelled), on_progress=lambda progress: begun.set())
        )
        await begun.wait()
        assert not cancelled.exists()
        call.cancel()
        await until(cancelled.exists)
        await settled(lambda: client.call("shop_pid"), lambda result: result.text == process)


async def test_a_process_that_ends_fails_its_calls_and_is_started_again(
    asking: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("gateway")
    server.mount("shop", asking)
    caplog.set_level(logging.INFO, "antiphon.gateway")
    async with server.running(), Client(server) as client:
        first = (await client.call("shop_pid")).text
        lost = await client.call("shop_die", code=3, check=False)
        assert lost.is_error
        assert lost.text.startswith("The server 'shop' has exited with code 3")
        while_away = await client.call("shop_pid", check=False)
        assert "The server 'shop' is not available" in while_away.text
        assert [tool.name for tool in await client.tools()], "its tools stay in the list"
        await settled(lambda: client.call("shop_pid", check=False), lambda result: not result.is_error)
        assert (await client.call("shop_pid")).text != first
    assert "asking_mcp1" not in caplog.text, "a command can contain secrets"


async def test_a_server_can_be_started_again(asking: list[str]) -> None:
    server = Server("gateway", secrets=["a secret of these tests"])
    server.mount("up", asking)
    for _ in range(2):
        async with Client(server) as client:
            assert (await client.call("up_pid")).text


async def test_its_processes_end_with_the_server(asking: list[str]) -> None:
    server = Server("gateway")
    server.mount("shop", asking)
    async with server.running(), Client(server) as client:
        process = int((await client.call("shop_pid")).text)
    await until(lambda: not os.path.exists(f"/proc/{process}"))


async def test_a_server_that_cannot_be_started_does_not_keep_the_others_away(
    asking: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("gateway")
    server.mount("bad", ["/no/such/program", "--key=s3cret"])
    server.mount("shop", asking)
    async with server.running(), Client(server) as client:
        assert (await client.call("shop_count", to=1)).text == "1"
    assert "The server 'bad' is not available" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_name_that_is_taken_is_left_out_also_at_the_start(
    asking: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("gateway")

    @server.tool
    def shop_order() -> str:
        return "mine"

    server.mount("shop", asking)
    async with Client(server) as client:
        assert (await client.call("shop_order")).text == "mine"
        assert (await client.call("shop_count", to=1)).text == "1"
    assert "what the server 'shop' offers: 1 tools, because this name is taken: 'order'" in caplog.text


@pytest.mark.parametrize(
    ("name", "target", "options", "problem"),
    [
        ("no spaces", ["x"], {}, "becomes a prefix"),
        ("fine", "not a URL", {}, "pass a URL, a list of a program"),
        ("fine", ["x"], {"retries": 3}, "has no option 'retries'"),
    ],
)
async def test_wrong_mounts_are_refused(name: str, target: Any, options: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Server("gateway").mount(name, target, **options)
