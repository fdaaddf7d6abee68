"""Strangers on a server without authentication: they get what they can name, and no list of anything."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Artifact, BearerTokens, Client, Result, Server
from tests.cli.command import running
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern, Session

HERE = Path(__file__)
TOKENS = BearerTokens({"token-of-ada": "ada", "token-of-bob": "bob"})


def made(**options: Any) -> Server:
    server = Server("lists", artifacts="memory:", **options)

    @server.tool(task="optional", answer_within=None)
    async def note() -> str:
        return "a secret note"

    @server.tool
    async def draw() -> Result:
        return Result(artifact=Artifact({"secret": 1}, type="drawing"))

    @server.resource("data://public")
    async def public() -> str:
        return "for everybody"

    return server


server = made()
"""For `antiphon run`."""


@pytest.fixture(params=["asgi", "antiphon run"])
async def port(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[int]:
    """The port of a server without authentication, behind both ways into it."""
    if request.param == "asgi":
        async with serving(made()) as address:
            yield address.port
    else:
        with running(HERE, directory=tmp_path) as process:
            yield int(process.url.rpartition(":")[2].partition("/")[0])


async def begun(speaker: Bare | Session) -> str:
    """Begin a task, and return its id."""
    started = await speaker.ask("tools/call", {"name": "note", "arguments": {}, "task": {}})
    return str(started.result["task"]["taskId"])


@pytest.mark.parametrize("dialect", ["draft", "2025-11-25"])
async def test_strangers_cannot_list_tasks_and_reach_only_those_that_they_can_name(
    port: int, dialect: str
) -> None:
    stranger: Bare | Session = Bare(port)
    if dialect != "draft":
        stranger = Session(port)
        opened = await stranger.open()
        assert opened.result["capabilities"]["tasks"] == {
            "cancel": {},
            "requests": {"tools": {"call": {}}},
            "responses": opened.result["capabilities"]["tasks"]["responses"],
        }
    id = await begun(stranger)
    refused = await stranger.ask("tasks/list")
    assert refused.error["code"] == -32601
    assert "needs authentication" in refused.error["message"]
    # The id is the key: 128 random bits, beside the time.
    assert len(id.rpartition("-")[2]) == 32
    result = await stranger.ask("tasks/result", {"taskId": id})
    assert "a secret note" in json.dumps(result.result)


async def test_strangers_cannot_list_artifacts_and_read_only_those_that_they_can_name(port: int) -> None:
    client = Modern(port)
    drawn = (await client.call("draw")).result["structuredContent"]
    listed = (await client.ask("resources/list")).result
    assert [resource["uri"] for resource in listed["resources"]] == ["data://public"]
    assert "nextCursor" not in listed
    assert (await client.ask("resources/list", {"cursor": "artifacts:"})).error["code"] == -32602
    read = await client.ask("resources/read", {"uri": f"artifact://lists/{drawn['artifact_id']}"})
    assert json.loads(read.result["contents"][0]["text"]) == {"secret": 1}


async def test_authenticated_callers_list_their_own_tasks_and_artifacts() -> None:
    async with serving(made(authenticate=TOKENS)) as address:
        ada, bob = (
            Session(address.port, headers={"authorization": f"Bearer token-of-{name}"})
            for name in ("ada", "bob")
        )
        for session in (ada, bob):
            opened = await session.open()
            assert opened.result["capabilities"]["tasks"]["list"] == {}
        id = await begun(ada)
        await ada.call("draw")
        assert [task["taskId"] for task in (await ada.ask("tasks/list")).result["tasks"]] == [id]
        assert (await bob.ask("tasks/list")).result["tasks"] == []
        assert len((await ada.ask("resources/list")).result["resources"]) == 2
        assert len((await bob.ask("resources/list")).result["resources"]) == 1


@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_a_caller_who_started_the_server_lists_everything(transport: str) -> None:
    command = [sys.executable, "-m", "antiphon", "run", str(HERE), "--stdio"]
    async with Client(made() if transport == "memory" else command, protocol="2025-11-25") as client:
        handle = await client.submit("note")
        await handle.result()
        assert [status.id for status in await client.tasks()] == [handle.id]
        await client.call("draw")
        assert len(await client.resources()) == 2
        assert client.capabilities["tasks"]["list"] == {}
