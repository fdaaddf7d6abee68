"""Connections to an upstream server that are lost, one by one: the others and the next ones work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import AntiphonError, Client, Failure, InputRequired, Server
from antiphon.gateway import sessions, upstream_client
from antiphon.testing import Clock
from tests.gateway.conftest import HERE, MCP_1
from tests.support.polling import DEADLINE, until
from tests.support.process import ServerProcess, end, environment, free_port, wait_for


@asynccontextmanager
async def mounted(target: Any) -> AsyncIterator[Server]:
    server = Server("gateway", secrets=["a secret of these tests"])
    server.mount("peer", target, prefix=False)
    async with server.running():
        yield server


async def begun(client: Client, tool: str, **arguments: Any) -> asyncio.Task[Any]:
    """Call a tool, and wait for its first progress."""
    reported = asyncio.Event()
    call = client.call(tool, arguments, on_progress=lambda progress: reported.set())
    calling = asyncio.create_task(call)
    await asyncio.wait_for(reported.wait(), DEADLINE)
    return calling


async def call_until_it_works(client: Client, tool: str, **arguments: Any) -> str:
    async def called() -> str | None:
        with contextlib.suppress(AntiphonError):
            return (await client.call(tool, arguments)).text
        return None

    text = await until(called)
    assert text is not None
    return text


async def test_a_server_that_did_not_read_a_cancellation_is_started_again(
    asking: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_client, "SETTLE_SECONDS", 0.2)
    async with (
        mounted(asking) as server,
        Client(server, elicit=lambda question: {"size": 1}) as client,
        Client(server) as other,
    ):
        first = await client.call("pid")
        marker = tmp_path / "blocks"
        blocked = asyncio.create_task(client.call("block", marker=str(marker)))
        await until(marker.exists)
        blocked.cancel()
        await asyncio.wait({blocked})
        assert await call_until_it_works(client, "order", what="tea") == "1 x tea in run 1"
        assert await call_until_it_works(other, "pid") != first.text


async def test_calls_on_other_processes_go_on_when_the_first_one_dies(asking: list[str]) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def elicit(question: Any) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return {"size": 2}

    async with (
        mounted(asking) as server,
        Client(server, elicit=elicit) as client,
        Client(server, elicit=elicit) as second,
    ):
        pid = int((await client.call("pid")).text)
        dying = await begun(client, "linger")  # on the first process
        waiting = asyncio.create_task(second.call("order", what="tea"))  # on another one
        await asyncio.wait_for(asked.wait(), DEADLINE)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(AntiphonError):
            await dying
        assert await call_until_it_works(client, "pid")
        answer.set()
        assert (await waiting).text == "2 x tea in run 1"


async def test_a_server_over_http_that_was_restarted_has_new_sessions(tmp_path: Path) -> None:
    port = free_port()

    def start() -> ServerProcess:
        log = tmp_path / "upstream.log"
        with log.open("ab") as sink:
            process = subprocess.Popen(
                [str(MCP_1), str(HERE / "asking_mcp1.py"), str(port)],
                env=environment(),
                stdout=sink,
                stderr=sink,
            )
        server = ServerProcess(process, port, log)
        wait_for(server, 60)
        return server

    upstream = start()
    try:
        async with (
            mounted(f"http://127.0.0.1:{port}/mcp") as server,
            Client(server, elicit=lambda question: {"size": 1}) as client,
            Client(server) as other,
        ):
            assert (await client.call("order", what="tea")).text == "1 x tea in run 1"
            assert (await other.call("pid")).text
            end(upstream.process)
            for each in (client, other):
                with pytest.raises(AntiphonError):
                    await each.call("pid")
            upstream = start()
            assert await call_until_it_works(client, "order", what="tea") == "1 x tea in run 1"
            assert await call_until_it_works(other, "pid") == str(upstream.process.pid)
    finally:
        end(upstream.process)


async def test_log_messages_on_a_shared_connection_do_not_reach_the_call_that_opened_it(
    asking: list[str],
) -> None:
    logged: list[Any] = []
    async with (
        mounted(asking) as server,
        Client(server, elicit=lambda question: {"size": 1}) as holder,
        Client(server, on_log=logged.append, log_level="debug") as opener,
        Client(server, log_level="debug") as sharer,
    ):
        holding = await begun(holder, "linger")  # has the first connection
        opening = await begun(opener, "linger")  # has opened the second one
        await sharer.call("count", to=1)  # on the second one
        await opener.call("count", to=1)
        assert logged == []
        holding.cancel()
        opening.cancel()


async def test_the_question_that_was_open_longest_makes_room_for_another_call(
    asking: list[str],
) -> None:
    server = Server("gateway", secrets=["a secret of these tests"])
    server.mount("peer", asking, prefix=False, max_connections=2)
    async with server.running(), Client(server, elicit=lambda question: {"size": 1}) as client:
        first, second = [await client.call_once("order", {"what": what}) for what in ("tea", "milk")]
        assert isinstance(first, InputRequired)
        assert isinstance(second, InputRequired)
        calling = asyncio.create_task(client.call("pid"))
        with Clock() as clock:
            await clock.advance(1.5 * sessions.EVICT_SECONDS)
        assert (await calling).text
        with pytest.raises(Failure, match="other calls need its connection"):
            await client.call_once("order", {"what": "tea"}, resume=first, answers=answers(first))
        assert (
            await client.call_once("order", {"what": "milk"}, resume=second, answers=answers(second))
        ).text.startswith("1 x milk")


def answers(asked: InputRequired) -> dict[str, Any]:
    return {key: {"action": "accept", "content": {"size": 1}} for key in asked.questions}
