"""A client on a connection of its own: invalid frames, limits, and the end of calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Context, Limits, Server
from antiphon.transport.server.stream_connection import StreamConnection
from tests.promises.speaking import RELATED
from tests.support.memory import in_memory
from tests.support.polling import until
from tests.support.speakers import CLIENT, KEY, LEGACY


def slow(**limits: Any) -> tuple[Server, asyncio.Event, list[str]]:
    """Return a server with a tool that waits, the event that releases it, and the log of its calls."""
    server, release, ends = Server("tests", limits=Limits(**limits)), asyncio.Event(), list[str]()

    @server.tool
    async def wait() -> str:
        ends.append("began")
        try:
            await release.wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return "done"

    return server, release, ends


def frame(id: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


@pytest.mark.parametrize(("sent", "code"), [("rubbish", -32700), ("[]", -32600), (b"\xff", -32700)])
async def test_an_invalid_frame_gets_an_error_without_an_id(sent: str | bytes, code: int) -> None:
    written: list[dict[str, Any]] = []

    async def write(data: bytes) -> None:
        written.append(json.loads(data))

    connection = StreamConnection(Server("tests").engine, write)
    connection.receive(sent)
    await connection.close(within=1)
    (answer,) = written
    assert (answer.get("id"), answer["error"]["code"]) == (None, code)


async def test_an_unknown_version_is_refused() -> None:
    async with in_memory(Server("tests")) as client:
        error = await client.error("ping", meta={KEY + "protocolVersion": "v999"})
    assert error["code"] == -32022
    assert error["data"]["requested"] == "v999"


async def test_a_call_over_the_limit_is_refused_as_busy() -> None:
    server, release, ends = slow(max_calls=1)
    async with in_memory(server) as client:
        first = asyncio.create_task(client.call("wait"))
        await until(lambda: ends)
        error = await client.error("tools/call", {"name": "wait"})
        assert "limit of calls" in error["message"]
        release.set()
        assert (await first)["content"][0]["text"] == "done"
    assert ends == ["began"]


async def test_a_response_answers_the_open_question_of_the_task_that_it_names() -> None:
    server = Server("tests", store="memory:")
    release = asyncio.Event()

    @server.tool(task="required")
    async def ask(ctx: Context) -> str:
        name = await ctx.elicit("Who?", str, key="name")
        await release.wait()
        return name

    async with in_memory(server) as client:
        id = (await client.result("tools/call", {"name": "ask", "task": {}}))["task"]["taskId"]
        task = {"taskId": id}
        assert list((await client.result("tasks/result", task))["inputRequests"]) == ["name"]
        response = {"action": "accept", "content": {"value": "Ada"}, "_meta": {RELATED: task}}
        answer = json.dumps({"jsonrpc": "2.0", "id": 9, "result": response})
        client.connection.receive(answer)
        while (await client.result("tasks/get", task))["status"] == "input_required":
            pass
        release.set()
        assert (await client.result("tasks/result", task))["content"][0]["text"] == "Ada"
        client.pending[None] = refused = asyncio.get_running_loop().create_future()
        client.connection.receive(answer)  # the same answer again is taken as the one that was given
        client.connection.receive(answer.replace("Ada", "Bob"))
        error = (await refused)["error"]
        assert error["code"] == -32602
        assert "another answer" in error["message"]


@asynccontextmanager
async def waiting(written: list[bytes]) -> AsyncIterator[tuple[StreamConnection, asyncio.Task[None]]]:
    """Yield a connection with one waiting call, which writes to a list, and the call's task.

    Checks that the call was stopped.
    """
    server, _, ends = slow()

    async def write(data: bytes) -> None:
        written.append(data)

    async with server.running():
        connection, others = StreamConnection(server.engine, write), asyncio.all_tasks()
        connection.receive(frame(1, "tools/call", name="wait"))
        await until(lambda: ends)
        (task,) = asyncio.all_tasks() - others
        yield connection, task
    assert ends == ["began", "cancelled"]


async def test_calls_that_do_not_end_in_time_are_stopped_with_an_error() -> None:
    written: list[bytes] = []
    async with waiting(written) as (connection, _):
        await connection.close(within=0)
    (answer,) = map(json.loads, written)
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32603
    assert "The server shut down before it finished this request." in answer["error"]["message"]


async def test_a_call_whose_task_is_cancelled_gets_no_answer() -> None:
    written: list[bytes] = []
    async with waiting(written) as (connection, task):
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await connection.close(within=1)
    assert written == []


async def test_a_client_that_initializes_twice_gets_each_change_once() -> None:
    server = Server("tests")
    async with in_memory(server) as client:
        for _ in range(2):
            opened = await client.initialize()
            assert opened["protocolVersion"] == LEGACY
        await client.ask("ping")

        @server.tool
        async def another() -> str:
            return CLIENT["name"]

        await until(lambda: client.notifications)
        await client.ask("ping")
        assert [told["method"] for told in client.notifications] == ["notifications/tools/list_changed"]
