"""Streaming over the standard streams of a real process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.asking.driving import EVERYTHING, accept
from tests.promises.speaking import TASKS
from tests.streaming.speaking import ALL, STREAMING, declaring, numbered, task_id, texts, wish
from tests.support.speakers import CLIENT, KEY, LEGACY, MODERN
from tests.support.stdio import StdioServer, stdio_server


@pytest.fixture
async def server() -> AsyncIterator[StdioServer]:
    """A server with tools that emit, in its own process."""
    async with stdio_server("emitting.py") as found:
        yield found


async def lines(
    server: StdioServer, method: str, params: dict[str, Any], id: Any, *, until: str = "isComplete"
) -> list[dict[str, Any]]:
    """Return the messages for a request, up to its response."""
    await server.send({"id": id, "method": method, "params": params})
    found = []
    while (frame := await server.read()) is not None:
        found.append(frame)
        result = frame.get("result", {})
        is_asking = result.get("resultType") == "input_required"
        if "error" in frame or ("result" in frame and (is_asking or result.get(until, True) is not False)):
            return found
    raise AssertionError(found)


async def test_the_draft(server: StdioServer) -> None:
    plain = {"name": "count", "arguments": {"n": 600}}
    frames = await lines(server, "tools/call", {**plain, "stream": {}}, "a")
    assert len(texts(frames)) == 600
    assert {frame["id"] for frame in frames} == {"a"}
    frames = await lines(server, "tools/call", wish("count", "streaming", n=600), "b")
    assert len(texts(frames)) == 600
    assert len(frames) > 1
    id = task_id(frames[-1]["result"])
    frames = await lines(server, "tasks/result", {"taskId": id, "lastSeqNr": 598}, "c")
    assert numbered(frames) == [(599, "599"), (600, "600")]
    frames = await lines(server, "tasks/result", {"taskId": id, "stream": {}}, "d")
    assert len(texts(frames)) == 600
    assert len((await server.ask("tasks/result", {"taskId": id}, id="e"))["result"]["content"]) == 600
    frames = await lines(server, "tools/call", wish("fail", "streaming", n=2), "f")
    assert texts(frames) == ["1", "2", "It cannot be done."]
    assert (frames[-1]["result"]["isError"], frames[-1]["result"]["isComplete"]) == (True, True)


async def test_the_draft_by_rounds(server: StdioServer) -> None:
    params: dict[str, Any] = {"name": "ask", "arguments": {}, "stream": {}}
    asked = await lines(server, "tools/call", params, "a")
    assert texts(asked) == ["1"]
    params["inputResponses"] = {"who": accept(name="Ada")}
    params["requestState"] = asked[-1]["result"]["requestState"]
    assert numbered(await lines(server, "tools/call", params, "b")) == [(2, "2 Ada")]


async def test_2025_11_25(server: StdioServer) -> None:
    params = {"protocolVersion": LEGACY, "capabilities": declaring(*ALL), "clientInfo": CLIENT}
    initialized = await server.ask("initialize", params)
    assert "streaming" in initialized["result"]["capabilities"]["tasks"]["responses"]["modes"]
    await server.send({"method": "notifications/initialized"})
    frames = await lines(server, "tools/call", wish("count", "streaming", n=600), "b")
    assert len(texts(frames)) == 600
    assert {frame["id"] for frame in frames} == {"b"}
    await server.send({"id": "c", "method": "tools/call", "params": wish("ask", "streaming")})
    frames = []
    while not frames or frames[-1].get("result", {}).get("isComplete") is not True:
        frame = await server.read()
        assert frame is not None
        frames.append(frame)
        if frame.get("method") == "elicitation/create":
            await server.send({"id": frame["id"], "result": accept(name="Ada")})
    assert texts(frames) == ["1", "2 Ada"]


async def test_2025_11_25_without_the_declaration(server: StdioServer) -> None:
    params = {"protocolVersion": LEGACY, "capabilities": EVERYTHING, "clientInfo": CLIENT}
    await server.ask("initialize", params)
    answered = await server.ask("tools/call", wish("count", "streaming", n=3), id="a")
    assert answered["result"]["task"]["status"] == "working"
    answered = await server.ask("tools/call", {"name": "count", "arguments": {"n": 3}, "stream": {}}, id="b")
    assert len(answered["result"]["content"]) == 3


async def test_2026_07_28(server: StdioServer) -> None:
    def meta(*extensions: str) -> dict[str, Any]:
        declared = {**EVERYTHING, "extensions": {key: {} for key in extensions}}
        return {
            KEY + "protocolVersion": MODERN,
            KEY + "clientInfo": CLIENT,
            KEY + "clientCapabilities": declared,
        }

    call = {"name": "count", "arguments": {"n": 600}}
    frames = await lines(server, "tools/call", {**call, "_meta": meta(STREAMING)}, "a", until="-")
    assert len(frames[-1]["result"]["content"]) == 600
    found = numbered(frames)
    assert found == [(n, str(n)) for n in range(1, len(found) + 1)]
    assert found
    assert {frame["params"]["requestId"] for frame in frames[:-1]} == {"a"}
    both = meta(STREAMING, TASKS)
    made = (await lines(server, "tools/call", {**call, "_meta": both}, "b", until="-"))[-1]["result"]
    assert made["resultType"] == "task"
    params = {"taskId": made["taskId"], "after": 590, "_meta": both}
    frames = await lines(server, "tasks/stream", params, "c", until="-")
    assert numbered(frames) == [(n, str(n)) for n in range(591, 601)]
    assert frames[-1]["result"]["status"] == "completed"
    refused = await lines(server, "tasks/stream", {**params, "_meta": meta(TASKS)}, "d", until="-")
    assert refused[-1]["error"]["code"] == -32021
