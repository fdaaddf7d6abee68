"""Numbers that no machine word holds, wherever a caller can send one: a clear error, or the right answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Artifact, Context, Server
from antiphon.model.question import SampleResult
from tests.hostile.unwritable import nested
from tests.support import http
from tests.support.memory import in_memory
from tests.support.serving import Address, serving
from tests.support.speakers import CLIENT, DIALECTS, LEGACY, Modern, Session, speaker

NUMBERS = (2**63, 2**64, -(2**63) - 1, 10**40, 10**400)
DIGITS = "1" * 5000
"""More digits than Python converts to a number."""


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each kind of store."""
    if request.param == "postgres":
        return str(request.getfixturevalue("database").url())
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def where(store: str) -> AsyncIterator[Address]:
    """A server on each kind of store."""
    server = Server("tests", store=store, artifacts=store)

    @server.tool(task="optional", task_ttl=10)
    async def add(a: int) -> str:
        return str(a + 1)

    @server.tool
    async def keep() -> Artifact[str]:
        return Artifact("0123456789")

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        return str(
            await ctx.elicit("?", {"type": "object", "properties": {"n": {"type": "integer"}}}, key="q")
        )

    async with serving(server) as address:
        yield address


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_arguments_and_ids(where: Address, dialect: str) -> None:
    client = await speaker(dialect, where.port)
    for number in NUMBERS:
        assert (await client.call("add", a=number)).text == str(number + 1)
    for id in (2**63, -(2**63) - 1, 10**40):
        refused = await client.ask("tools/call", {"name": "add", "arguments": {"a": 1}}, id=id)
        assert (refused.status, "64 bits" in refused.error["message"]) == (400, True)
    headers, frame = client.build("tools/call", {"name": "add", "arguments": {"a": 0}})
    for old, new in (('"a": 0', f'"a": {DIGITS}'), ('"id": 1', f'"id": {DIGITS}'), ('"a": 0', '"a": 1e400')):
        body = json.dumps(frame).replace(old, new, 1).encode()
        refused = await http.request(where.port, "POST", headers, body)
        assert refused.error["code"] in (-32700, -32600, -32602), refused.body
    assert (await client.call("add", a=1)).text == "2"


async def test_the_time_to_live_of_a_task(where: Address) -> None:
    session = Session(where.port)
    await session.open(LEGACY, {"tasks": {}})
    ids = []
    for ttl in (2**31, 2**53, *(number for number in NUMBERS if number > 0)):
        created = await session.ask(
            "tools/call", {"name": "add", "arguments": {"a": 1}, "task": {"ttl": ttl}}
        )
        assert created.result["task"]["ttl"] <= 2**53, ttl
        ids.append(created.result["task"]["taskId"])
    for bad in (0, -1, -(10**40), 1.5, 1e300, "1", True, [], {}):
        refused = await session.ask(
            "tools/call", {"name": "add", "arguments": {"a": 1}, "task": {"ttl": bad}}
        )
        assert refused.error["code"] == -32602, bad
    found = [(await session.ask("tasks/get", {"taskId": id})).result["taskId"] for id in ids]
    assert (found, len(ids)) == (ids, 6)


async def test_answers_and_arguments_of_tasks(where: Address) -> None:
    session = Session(where.port)
    await session.open(LEGACY, {"tasks": {}, "elicitation": {}})
    for number in NUMBERS:
        params = {"name": "add", "arguments": {"a": number}, "task": {}}
        id = (await session.ask("tools/call", params)).result["task"]["taskId"]
        result = await session.ask("tasks/result", {"taskId": id})
        assert result.text == str(number + 1)
    deep = {"name": "add", "arguments": {"a": 1, "more": nested(400)}, "task": {}}
    assert "nested too deeply" in (await session.ask("tools/call", deep)).error["message"]


async def test_capabilities(where: Address) -> None:
    for number in NUMBERS:
        params = {"protocolVersion": LEGACY, "capabilities": {"x": {"n": number}}, "clientInfo": CLIENT}
        answer = await Session(where.port).ask("initialize", params)
        if -(2**63) <= number < 2**64:
            assert "mcp-session-id" in answer.headers
        else:
            assert "must fit in 64 bits" in answer.error["message"], number
    params = {"protocolVersion": LEGACY, "capabilities": {"x": nested(400)}, "clientInfo": CLIENT}
    assert "nested too deeply" in (await Session(where.port).ask("initialize", params)).error["message"]
    modern = Modern(where.port)
    modern.capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {"n": 10**40}}}
    assert (await modern.call("add", a=1)).status == 200


async def test_offsets_of_artifacts(where: Address) -> None:
    client = Modern(where.port)
    uri = (await client.call("keep")).result["structuredContent"]["artifact_id"]
    base = f"artifact://tests/{uri}"
    for good, text in (("offset=3", "3456789"), ("offset=10", ""), (f"length={10**40}", "0123456789")):
        read = await client.ask("resources/read", {"uri": f"{base}?{good}"})
        assert read.result["contents"][0]["text"] == text, good
    for bad in (
        "-1",
        "11",
        str(2**63),
        str(2**64),
        str(10**100),
        DIGITS,
        "1.5",
        "1e400",
        "nan",
        "x",
        "%00",
        "0x1",
    ):
        refused = await client.ask("resources/read", {"uri": f"{base}?offset={bad}"})
        assert refused.error["code"] in (-32602, -32002), bad
        assert "internal" not in refused.error["message"].lower()
        assert "failed" not in refused.error["message"]
    for bad in ("-1", DIGITS, "1.5", "x"):
        refused = await client.ask("resources/read", {"uri": f"{base}?length={bad}"})
        assert refused.error["code"] in (-32602, -32002), bad


async def test_the_place_in_a_stream(where: Address) -> None:
    session = Session(where.port)
    await session.open(LEGACY, {"tasks": {}})
    created = await session.ask("tools/call", {"name": "add", "arguments": {"a": 1}, "task": {}})
    id = created.result["task"]["taskId"]
    for place in (*NUMBERS, 1.5, -1, 0, "1", True):
        answer = await session.ask("tasks/result", {"taskId": id, "lastSeqNr": place})
        if "error" in answer.frame:
            assert "log" not in answer.error["message"], (place, answer.error)


async def test_over_memory_too() -> None:
    server = Server("tests")

    @server.tool
    async def add(a: int) -> str:
        return str(a + 1)

    async with in_memory(server) as client:
        for number in NUMBERS:
            assert await client.text("add", a=number) == str(number + 1)
        params = {"protocolVersion": LEGACY, "capabilities": {"n": 10**40}, "clientInfo": CLIENT}
        assert "64 bits" in (await client.error("initialize", params))["message"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"type": "text", "text": "a"}, "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ({"type": "text"}, ""),
        ({"type": "text", "text": 7}, ""),
        ([{"type": "text", "text": None}, {"type": "text", "text": "b"}], "b"),
        ([{"type": ["text"], "text": "a"}, 7, None, "x", []], ""),
        (None, ""),
        ("x", ""),
        (7, ""),
    ],
)
def test_the_text_of_a_sample_with_odd_content(content: Any, text: str) -> None:
    assert SampleResult("assistant", content, "m").text == text
