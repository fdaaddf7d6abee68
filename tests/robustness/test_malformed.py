"""Thousands of bodies that are almost requests: each gets the right error, and the server keeps working."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon import Server
from tests.robustness.mutation import bodies, expected
from tests.support import http
from tests.support.memory import in_memory
from tests.support.process import ServerProcess
from tests.support.sizes import size
from tests.support.speakers import JSON, MODERN, Modern, Session

BODIES = size(4_000, long=12_000)


@pytest.mark.long
async def test_every_body_gets_the_right_error(loaded: ServerProcess) -> None:
    session = Session(loaded.port)
    await session.open()
    modern = {**JSON, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "add"}
    size = loaded.memory
    counts = await asyncio.gather(
        post_all(loaded.port, JSON, bodies(1, BODIES // 2)),
        post_all(loaded.port, session.headers, bodies(2, BODIES // 4)),
        post_all(loaded.port, modern, bodies(3, BODIES // 4)),
    )
    assert sum(counts) == BODIES
    assert (await Modern(loaded.port).call("add", a=1, b=2)).text == "3"
    assert "Traceback" not in loaded.log
    assert loaded.memory - size < 20_000_000


async def post_all(port: int, headers: dict[str, str], posted: Iterable[bytes]) -> int:
    """Post bodies on one connection, check each response, and return their number."""
    count = 0
    async with http.connect(port) as connection:
        for body in posted:
            await connection.send("POST", "/mcp", headers, body)
            check_response(body, await connection.receive())
            count += 1
    return count


def check_response(body: bytes, response: http.Response) -> None:
    """Fail if a response is wrong for a body."""
    assert response.status < 500, (body, response)
    allowed = expected(body)
    if not response.body:
        assert response.status == 202, (body, response)
        assert 0 in allowed, body
        return
    frame: dict[str, Any] = response.frame
    assert frame["jsonrpc"] == "2.0"
    if "error" not in frame:
        assert isinstance(frame["result"], dict)
        assert 0 in allowed, (body, frame)
        return
    assert frame["error"]["code"] in allowed, (body, frame, allowed)
    assert isinstance(frame["error"]["message"], str)
    if frame["error"]["code"] in (-32700, -32600):
        assert response.status == 400, (body, response)
    if "id" in frame:
        assert frame["id"] == json.loads(body.decode("utf-8", "replace"))["id"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
server = Server("tests")


@server.tool
async def add(a: int, b: int) -> str:
    return str(a + b)


@server.resource("u://{name}")
async def resource(name: str) -> str:
    return name


@server.prompt
async def prompt(name: str) -> str:
    return name


METHODS = [
    "ping",
    "tools/list",
    "tools/call",
    "resources/read",
    "prompts/get",
    "completion/complete",
    "initialize",
    "server/discover",
]


@pytest.mark.long
@settings(max_examples=size(200, long=500), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(METHODS),
    st.dictionaries(
        st.sampled_from(
            ["name", "arguments", "uri", "cursor", "_meta", "ref", "argument", "context", "protocolVersion"]
        ),
        anything
        | st.sampled_from(["add", "u://x", {"a": 1, "b": 2}, {"type": "ref/prompt", "name": "p"}])
        | st.dictionaries(
            st.sampled_from(["a", "b", "progressToken", "io.modelcontextprotocol/logLevel"]), anything
        ),
    ),
)
def test_any_params_end_with_a_result_or_an_error_of_the_caller(method: str, params: dict[str, Any]) -> None:
    async def ask() -> dict[str, Any]:
        async with in_memory(server) as client:
            return await client.ask(method, params)

    frame = asyncio.run(ask())
    assert frame.get("error", {}).get("code") in (None, -32601, -32602, -32002, -32022)
