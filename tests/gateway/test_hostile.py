"""Servers behind a gateway that hang, lie, flood, withdraw and die: a clear error, and the others go on."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Failure, InputRequired, RequestError, Server
from antiphon.gateway import provider, upstream, upstream_client
from tests.support.polling import until

SCRIPT = str(Path(__file__).with_name("hostile_upstream.py"))
VERSIONS = ["2026-07-28", "2025-11-25"]


@asynccontextmanager
async def gateway_to(way: str, **options: Any) -> AsyncIterator[Server]:
    server = Server("gateway", secrets=["a secret of these tests"])
    server.add_tool(lambda: "fine", name="fine")
    server.mount("bad", [sys.executable, SCRIPT, way], **options)
    async with server.running():
        yield server


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("endless", "does not end"),
        ("huge", "sent a line of more than"),
        ("silent", "has not answered within"),
    ],
)
async def test_a_list_without_an_end_is_reported_and_the_rest_is_served(
    way: str, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "MAX_MESSAGE_BYTES", 4 * 1024 * 1024)
    monkeypatch.setattr(upstream, "LIST_SECONDS", 1.0)
    async with gateway_to(way) as server, Client(server) as client:
        assert [tool.name for tool in await client.tools()] == ["fine"]
        assert (await client.call("fine")).text == "fine"
        await until(lambda: "The server 'bad' is not available" in caplog.text)
    assert reason in caplog.text


async def test_tools_that_cannot_be_offered_are_left_out() -> None:
    async with gateway_to("late") as server:
        assert server.tools == ("fine", "bad_do")


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_call_that_hangs_ends_and_the_next_one_has_another_process(protocol: str) -> None:
    async with gateway_to("hangs", timeout=0.5) as server:
        options: dict[str, Any] = {"elicit": lambda question: {}, "protocol": protocol}
        async with Client(server, **options) as client:
            for _ in range(3):
                with pytest.raises(Failure, match="did not finish within 0.5 seconds"):
                    await client.call("bad_do")


async def test_what_a_process_prints_reaches_the_log_and_not_the_callers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with gateway_to("leaks") as server, Client(server) as client:
        with pytest.raises(
            Failure, match="has exited with code 4. It printed a line, which is not MCP"
        ) as failed:
            await client.call("bad_do")
        with pytest.raises(Failure) as later:
            await client.call("bad_do")
    assert "hunter2" not in f"{failed.value}{later.value}"
    assert "hunter2" in caplog.text


@pytest.mark.parametrize(
    ("command", "options", "reason"),
    [
        (["/opt/s3cret/bin/server"], {}, "its program was not found"),
        ([SCRIPT], {}, "its program is not executable"),
        ([sys.executable], {"cwd": "/home/s3cret"}, "its folder (cwd) does not exist"),
    ],
)
async def test_a_command_that_cannot_be_started_is_reported_without_its_values(
    command: list[str], options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("gateway")
    server.mount("bad", command, **options)
    async with Client(server) as client:
        with pytest.raises(RequestError):
            await client.call("bad_do")
        await until(lambda: reason in caplog.text)
    assert "s3cret" not in caplog.text
    assert SCRIPT not in caplog.text


async def test_servers_that_hang_delay_the_start_by_a_few_seconds_together(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    wait = asyncio.wait

    async def counted(*args: Any, **options: Any) -> Any:
        if options.get("timeout") is not None and options.get("return_when"):
            waited.append(options["timeout"])
        return await wait(*args, **options)

    monkeypatch.setattr(provider, "START_SECONDS", 0.5)
    monkeypatch.setattr(provider.asyncio, "wait", counted)  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts connections, and reads nothing
        port = listening.getsockname()[1]
        server = Server("gateway")
        server.add_tool(lambda: "fine", name="fine")
        for name in ("one", "two", "three"):
            server.mount(name, f"http://127.0.0.1:{port}/mcp")
        async with Client(server) as client:
            assert (await client.call("fine")).text == "fine"
    assert sum(waited[:3]) <= 0.6  # they have one time limit, and not one each
    assert caplog.text.count("does not respond yet") == 3


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_question_that_is_withdrawn_does_not_keep_the_call(protocol: str) -> None:
    asked = asyncio.Event()

    async def elicit(question: Any) -> dict[str, Any]:
        asked.set()
        await asyncio.sleep(1.0)
        return {}

    async with gateway_to("withdraws") as server, Client(server, elicit=elicit, protocol=protocol) as client:
        async with asyncio.timeout(30):
            result = await client.call("bad_do", check=False)
        assert asked.is_set()
        assert result.is_error
        assert result.text == "it was withdrawn"


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_process_that_dies_while_it_asks_fails_the_call(protocol: str) -> None:
    async def elicit(question: Any) -> dict[str, Any]:
        await asyncio.sleep(1.0)
        return {}

    async with gateway_to("dies") as server, Client(server, elicit=elicit, protocol=protocol) as client:
        async with asyncio.timeout(30):
            result = await client.call("bad_do", check=False)
        assert result.is_error
        assert "The server 'bad' has exited with code 7" in result.text


async def test_a_flood_of_questions_is_bounded() -> None:
    async with gateway_to("floods") as server, Client(server, elicit=lambda question: {}) as client:
        async with asyncio.timeout(30):
            outcome = await client.call_once("bad_do")
        if isinstance(outcome, InputRequired):
            assert len(outcome.questions) <= 64


async def test_a_flood_of_changes_is_followed_a_few_times_only() -> None:
    async with gateway_to("changes") as server, Client(server) as client:
        async with asyncio.timeout(30):
            await client.call("bad_do")
            await asyncio.sleep(0.5)
            read = int((await client.call("bad_do")).text.partition(" ")[0])
        assert 1 < read < 50


async def test_a_question_after_the_call_reaches_nobody_else() -> None:
    asked: list[str] = []

    def elicit(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        return {}

    async with gateway_to("late") as server, Client(server, elicit=elicit) as client:
        assert (await client.call("bad_do")).text == "done"
        await asyncio.sleep(0.5)
        assert asked == []


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_question_of_a_cancelled_call_reaches_nobody_else(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_client, "SETTLE_SECONDS", 0.2)
    asked: list[str] = []

    def person(name: str) -> Any:
        def elicit(question: Any) -> dict[str, Any]:
            asked.append(name)
            return {}

        return {"principal": name, "elicit": elicit, "protocol": protocol}

    async with gateway_to("ignores") as server:
        async with Client(server, **person("ada")) as ada, Client(server, **person("bob")) as bob:
            cancelled = asyncio.create_task(ada.call("bad_do"))
            await asyncio.sleep(0.3)
            cancelled.cancel()
            await asyncio.wait({cancelled})
            await asyncio.sleep(0.5)
            assert (await bob.call("bad_do")).text == "done"
        assert asked == ["bob"], "bob is asked by his own call alone"


async def test_nonsense_is_an_error_that_names_the_server() -> None:
    async with gateway_to("nonsense") as server, Client(server) as client:
        result = await client.call("bad_do", check=False)
        assert result.is_error
        assert "server 'bad'" in result.text
        assert "\x1b" not in result.text


async def test_an_error_is_passed_on_without_its_escapes() -> None:
    async with gateway_to("escapes") as server, Client(server) as client:
        with pytest.raises(RequestError) as error:
            await client.call("bad_do")
        assert "\x1b" not in error.value.message


async def test_a_list_that_hangs_later_does_not_delay_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "REFRESH_SECONDS", 0.1)
    async with gateway_to("late") as server, Client(server) as client:
        (found,) = server.engine.registry.providers
        hung = asyncio.get_running_loop().create_future()

        async def never(*args: Any) -> Any:
            return await hung

        monkeypatch.setattr(provider, "_listed", never)
        assert isinstance(found, provider.UpstreamProvider)
        async with asyncio.timeout(10):
            assert [tool.name for tool in await client.tools()] == ["fine", "bad_do"]
        hung.cancel()
