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

from antiphon import Client, Failure, RequestError, Server
from antiphon.gateway import provider, upstream, upstream_client
from antiphon.testing import Clock
from tests.support.polling import DEADLINE, forever, until

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
    ("way", "seconds", "reason"),
    [
        ("endless", 3600.0, "does not end"),
        ("huge", 3600.0, "sent a line of more than"),
        ("silent", 1.0, "has not answered within"),
    ],
)
async def test_a_list_without_an_end_is_reported_and_the_rest_is_served(
    way: str, seconds: float, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "MAX_MESSAGE_BYTES", 4 * 1024 * 1024)
    monkeypatch.setattr(upstream, "MAX_PAGES", 20)
    monkeypatch.setattr(upstream, "LIST_SECONDS", seconds)
    async with gateway_to(way) as server, Client(server) as client:
        assert [tool.name for tool in await client.tools()] == ["fine"]
        assert (await client.call("fine")).text == "fine"
        await until(lambda: "The server 'bad' is not available" in caplog.text)
    assert reason in caplog.text


async def test_tools_that_cannot_be_offered_are_left_out() -> None:
    async with gateway_to("late") as server:
        assert server.tools == ("fine", "bad_do")


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_call_that_hangs_ends_and_the_next_one_has_another_process(
    protocol: str, tmp_path: Path
) -> None:
    async with gateway_to("hangs", timeout=600, env={"FOLDER": str(tmp_path)}) as server:
        options: dict[str, Any] = {"elicit": lambda question: {}, "protocol": protocol, "timeout": 3600}
        async with Client(server, **options) as client:
            with Clock() as clock:
                for number in range(1, 4):
                    calling = asyncio.create_task(client.call("bad_do"))
                    await until(lambda number=number: len(list(tmp_path.glob("called-*"))) == number)
                    await clock.advance(600)
                    with pytest.raises(Failure, match="did not finish within 600 seconds"):
                        await calling


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
@pytest.mark.parametrize(
    ("way", "says"),
    [("withdraws", "it was withdrawn"), ("dies", "The server 'bad' has exited with code 7")],
)
async def test_a_question_whose_server_withdraws_it_or_dies_does_not_keep_the_call(
    protocol: str, way: str, says: str, tmp_path: Path
) -> None:
    async def elicit(question: Any) -> dict[str, Any]:
        (tmp_path / "asked").touch()
        await until((tmp_path / "withdrawn").exists)
        return {}

    options: dict[str, Any] = {"elicit": elicit, "protocol": protocol}
    async with (
        gateway_to(way, env={"FOLDER": str(tmp_path)}) as server,
        Client(server, **options) as client,
        asyncio.timeout(DEADLINE),
    ):
        result = await client.call("bad_do", check=False)
        assert result.is_error
        assert says in result.text


async def test_a_flood_of_questions_is_bounded() -> None:
    asked: list[str] = []

    async def elicit(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        await forever()
        return {}

    options: dict[str, Any] = {"elicit": elicit, "protocol": "2025-11-25"}
    async with (
        gateway_to("floods") as server,
        Client(server, **options) as client,
        asyncio.timeout(DEADLINE),
    ):
        assert (await client.call("bad_do")).text == "done"  # once a question is refused
        assert 1 <= len(asked) <= 64


async def test_a_flood_of_changes_is_followed_a_few_times_only() -> None:
    async with gateway_to("changes") as server, Client(server) as client:

        async def lists() -> int:
            return int((await client.call("bad_do")).text.partition(" ")[0])

        async def follows() -> bool:
            return await lists() > 1

        await until(follows)
        for _ in range(100):  # each takes as long as a list takes
            await lists()
        assert 1 < await lists() < 50


async def test_a_question_after_the_call_reaches_nobody_else(tmp_path: Path) -> None:
    asked: list[str] = []

    def elicit(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        return {}

    async with (
        gateway_to("late", env={"FOLDER": str(tmp_path)}) as server,
        Client(server, elicit=elicit) as client,
    ):
        assert (await client.call("bad_do")).text == "done"
        (tmp_path / "ended").touch()
        await until(lambda: list(tmp_path.glob("answered-*")))
        assert asked == []


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_question_of_a_cancelled_call_reaches_nobody_else(protocol: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def person(name: str) -> Any:
        def elicit(question: Any) -> dict[str, Any]:
            asked.append(name)
            return {}

        return {"principal": name, "elicit": elicit, "protocol": protocol}

    def have(done: str, number: int) -> bool:
        return len(list(tmp_path.glob(f"{done}-*"))) == number

    async with gateway_to("ignores", env={"FOLDER": str(tmp_path)}) as server:
        async with Client(server, **person("ada")) as ada, Client(server, **person("bob")) as bob:
            cancelled = asyncio.create_task(ada.call("bad_do"))
            await until(lambda: have("called", 1))
            cancelled.cancel()
            await until(lambda: have("pinged", 1))
            with Clock() as clock:  # the server responds, and does not end the call
                await clock.advance(1.5 * upstream_client.SETTLE_SECONDS)
            calling = asyncio.create_task(bob.call("bad_do"))
            await until(lambda: have("called", 2))
            (tmp_path / "ask").touch()
            assert (await calling).text == "done"
            await until(lambda: have("answered", 2))
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

        monkeypatch.setattr(provider, "read_list", never)
        assert isinstance(found, provider.UpstreamProvider)
        async with asyncio.timeout(DEADLINE):
            assert [tool.name for tool in await client.tools()] == ["fine", "bad_do"]
        hung.cancel()
