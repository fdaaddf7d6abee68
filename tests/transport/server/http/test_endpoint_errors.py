"""Requests that are refused, over a real socket: their status and their code, in each dialect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Context, InvalidParams, Limits, Server
from tests.support import http
from tests.support.serving import Address, serving
from tests.support.speakers import DIALECTS, JSON, KEY, LEGACY, MODERN, Bare, Modern, Session, speaker

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("way")]


def build() -> Server:
    server = Server("tests", limits=Limits(max_body_bytes=100_000))

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def refuse() -> str:
        raise InvalidParams("no")

    @server.tool
    async def needs(ctx: Context) -> str:
        ctx.require("sampling")
        return "able"

    @server.resource("u://r")
    async def resource() -> str:
        return "r"

    @server.resource("u://broken")
    async def broken() -> str:
        raise ValueError("s3cret")

    @server.prompt
    async def prompt(a: int) -> str:
        return "p"

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(way: str) -> AsyncIterator[Address]:
    async with serving(build()) as where:
        yield where


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(address: Address) -> Session:
    opened = Session(address.port)
    await opened.open()
    return opened


# Bodies that are no request: whatever the dialect would have been, one answer.
BODIES: list[tuple[str, bytes, int, int, Any]] = [
    ("nothing", b"", 400, -32700, None),
    ("rubbish", b"rubbish", 400, -32700, None),
    ("half an object", b'{"jsonrpc": "2.0", "id": 1', 400, -32700, None),
    ("not UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', 400, -32700, None),
    ("deep nesting", b"[" * 50_000, 400, -32700, None),
    (
        "deep nesting in params",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b'{"a":' * 9_000,
        400,
        -32700,
        None,
    ),
    ("a batch", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600, None),
    ("an empty batch", b"[]", 400, -32600, None),
    ("a string", b'"text"', 400, -32600, None),
    ("null", b"null", 400, -32600, None),
    ("no version of JSON-RPC", b'{"id":7,"method":"ping"}', 400, -32600, 7),
    ("the wrong one", b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 400, -32600, 7),
    ("a null id", b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600, None),
    ("an id that is a fraction", b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600, None),
    (
        "an id that is too long",
        b'{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}',
        400,
        -32600,
        None,
    ),
    ("a method that is a number", b'{"jsonrpc":"2.0","id":"x","method":1}', 400, -32600, "x"),
    ("neither method nor result", b'{"jsonrpc":"2.0","id":7}', 400, -32600, 7),
    ("params that are a string", b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"p"}', 400, -32600, 7),
    ("params that are a list", b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 400, -32602, 7),
    (
        "too long",
        b'{"jsonrpc":"2.0","id":7,"method":"ping","x":"' + b"x" * 200_000 + b'"}',
        413,
        -32600,
        None,
    ),
]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_invalid_bodies_are_refused(
    address: Address, session: Session, dialect: str, subtests: pytest.Subtests
) -> None:
    headers = {
        "modern": {**JSON, "mcp-protocol-version": MODERN, "mcp-method": "ping"},
        "session": session.headers,
        "bare": JSON,
    }[dialect]
    for name, body, status, code, id in BODIES:
        with subtests.test(name):
            response = await http.request(address.port, "POST", headers, body)
            assert (response.status, response.error["code"]) == (status, code)
            assert response.headers["content-type"] == "application/json"
            assert response.frame.get("id") == id
            assert response.error["message"]


# Requests that are understood as such: params, then the status and code on 2026, sessions and bare ones.
Case = tuple[str, str, dict[str, Any], tuple[int, int], tuple[int, int], tuple[int, int]]
REQUESTS: list[Case] = [
    ("an unknown method", "no/such", {}, (404, -32601), (200, -32601), (200, -32601)),
    ("a method of another time", "ping", {}, (404, -32601), (200, 0), (200, 0)),
    ("one of the future", "server/discover", {}, (200, 0), (200, -32601), (200, -32601)),
    ("an unknown tool", "tools/call", {"name": "none"}, (200, -32602), (200, -32602), (200, -32602)),
    ("no name", "tools/call", {}, (400, -32602), (200, -32602), (200, -32602)),
    ("bad shape", "tools/call", {"name": "add", "arguments": 1}, (400, -32602), (200, -32602), (200, -32602)),
    ("a bad cursor", "tools/list", {"cursor": "x"}, (200, -32602), (200, -32602), (200, -32602)),
    ("a refusal", "tools/call", {"name": "refuse"}, (200, -32602), (200, -32602), (200, -32602)),
    ("no resource", "resources/read", {"uri": "u://no"}, (200, -32602), (200, -32002), (200, -32002)),
    (
        "a broken resource",
        "resources/read",
        {"uri": "u://broken"},
        (200, -32603),
        (200, -32603),
        (200, -32603),
    ),
    ("no prompt", "prompts/get", {"name": "no"}, (200, -32602), (200, -32602), (200, -32602)),
    (
        "a bad argument",
        "prompts/get",
        {"name": "prompt", "arguments": {"a": "x"}},
        (200, -32602),
        (200, -32602),
        (200, -32602),
    ),
    ("a bad completion", "completion/complete", {}, (400, -32602), (200, -32602), (200, -32602)),
    ("a bad log level", "logging/setLevel", {"level": "x"}, (404, -32601), (200, -32602), (200, -32602)),
    (
        "a level without a session",
        "logging/setLevel",
        {"level": "info"},
        (404, -32601),
        (200, 0),
        (200, -32602),
    ),
    ("subscribing", "resources/subscribe", {"uri": "u://r"}, (404, -32601), (200, 0), (200, -32602)),
    (
        "arguments that do not fit",
        "tools/call",
        {"name": "add", "arguments": {"a": "x"}},
        (200, 0),
        (200, 0),
        (200, 0),
    ),
]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_requests_that_cannot_be_served(
    address: Address, dialect: str, subtests: pytest.Subtests
) -> None:
    asker = await speaker(dialect, address.port)
    for name, method, params, modern, legacy, bare in REQUESTS:
        status, code = {"modern": modern, "session": legacy, "bare": bare}[dialect]
        with subtests.test(name):
            response = await asker.ask(method, params, id="my id")
            assert response.status == status
            assert response.frame["id"] == "my id"
            if code:
                assert response.error["code"] == code
                assert "s3cret" not in json.dumps(response.frame)
            else:
                assert "error" not in response.frame


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_invalid_arguments_are_a_failed_result(address: Address, dialect: str) -> None:
    asker = await speaker(dialect, address.port)
    response = await asker.call("add", a="x")
    assert response.result["isError"] is True
    assert "b: This argument is required" in response.text


# 2026: what must stand in _meta and in headers.
META_CASES: list[tuple[str, dict[str, Any] | None, int]] = [
    ("no meta", None, -32602),
    ("no version in it", {KEY + "clientCapabilities": {}}, -32602),
    ("no capabilities in it", {KEY + "protocolVersion": MODERN}, -32602),
    ("another version in it", {KEY + "protocolVersion": "v999", KEY + "clientCapabilities": {}}, -32020),
    (
        "another known version in it",
        {KEY + "protocolVersion": LEGACY, KEY + "clientCapabilities": {}},
        -32020,
    ),
    (
        "a bad log level",
        {KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": {}, KEY + "logLevel": []},
        -32602,
    ),
]


@pytest.mark.parametrize(("meta", "code"), [pytest.param(*row[1:], id=row[0]) for row in META_CASES])
async def test_2026_requires_metadata(address: Address, meta: dict[str, Any] | None, code: int) -> None:
    headers = {**JSON, "mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    frame: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    if meta is not None:
        frame["params"]["_meta"] = meta
    response = await http.request(address.port, "POST", headers, json.dumps(frame).encode())
    assert (response.status, response.error["code"], response.frame["id"]) == (400, code, 1)


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
@pytest.mark.parametrize("value", [None, "wrong", "é"])
async def test_2026_requires_headers(address: Address, name: str, value: str | None) -> None:
    asker = Modern(address.port)
    headers, frame = asker.build("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    del headers[name]
    if value is not None:
        headers[name] = value
    response = await http.request(address.port, "POST", headers, json.dumps(frame).encode())
    assert (response.status, response.error["code"]) == (400, -32020)


@pytest.mark.parametrize("in_meta", [True, False])
async def test_an_unknown_version_is_refused(address: Address, in_meta: bool) -> None:
    params = {"_meta": {KEY + "protocolVersion": "v999", KEY + "clientCapabilities": {}}} if in_meta else {}
    asker = Bare(address.port, headers={"mcp-protocol-version": "v999"})
    response = await asker.ask("tools/list", params)
    assert (response.status, response.error["code"]) == (400, -32022)
    assert response.error["data"]["requested"] == "v999"
    assert response.error["data"]["supported"][0] == MODERN


async def test_a_missing_capability(address: Address) -> None:
    response = await Modern(address.port).call("needs")
    assert (response.status, response.error["code"]) == (400, -32021)
    assert response.error["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_a_response_without_a_question(address: Address, session: Session) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    modern = {**JSON, "mcp-protocol-version": MODERN}
    for headers in (session.headers, modern):
        response = await http.request(address.port, "POST", headers, body)
        assert (response.status, response.error["code"]) == (400, -32600)
