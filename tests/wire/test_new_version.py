"""A new protocol version is one module and one row: server and client speak it, and all others still work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from antiphon import Client, Context, Server
from antiphon.errors import MethodNotFound, UnsupportedVersion
from antiphon.wire.client.v2025_11_25 import ClientV2025
from antiphon.wire.versions import VERSIONS, Version
from tests.support.serving import Address, serving
from tests.wire.v2027_01_01 import V2027, ClientV2027

NEW, CURRENT, WITH_SESSIONS = "2027-01-01", "2026-07-28", "2025-11-25"
KEY = "io.modelcontextprotocol/"
ROW = Version(NEW, V2027, ClientV2027, stateless=True)

QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": {"value": {"type": "string"}},
            "required": ["value"],
        },
    },
}


@pytest.fixture
def new_version() -> Iterator[None]:
    with VERSIONS.register(ROW):
        yield


def make_server() -> Server:
    server = Server("tests", store="memory:")

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"Hello, {await ctx.elicit('Who?', str, key='who')}."

    @server.tool(task="required")
    async def greet_later(ctx: Context) -> str:
        return f"Hello, {await ctx.elicit('Who?', str, key='who')}."

    @server.prompt
    def letter(to: str) -> str:
        return f"Dear {to}"

    @server.completion("letter", "to")
    def names(value: str) -> list[str]:
        return [name for name in ("Ada", "Bob") if name.startswith(value)]

    return server


def ada(question: Any) -> dict[str, str]:
    return {"value": "Ada"}


class Recorder:
    """An ASGI app that keeps everything another one sends."""

    def __init__(self, app: Any) -> None:
        self.sent = b""
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def record(message: Any) -> None:
            self.sent += message.get("body", b"")
            await send(message)

        await self._app(scope, receive, record)


async def post(address: Address, version: str, method: str, params: dict[str, Any]) -> httpx2.Response:
    meta = {f"{KEY}protocolVersion": version, f"{KEY}clientCapabilities": {"elicitation": {}}}
    frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": method,
        **({"mcp-name": params["name"]} if "name" in params else {}),
    }
    async with httpx2.AsyncClient() as http:
        return await http.post(address.url, json=frame, headers=headers)


@pytest.mark.usefixtures("new_version")
@pytest.mark.parametrize("protocol", [None, NEW])
async def test_a_call_that_asks_works_in_the_new_version(protocol: str | None) -> None:
    app = Recorder(make_server().asgi())
    async with serving(app) as address, Client(address.url, elicit=ada, protocol=protocol) as client:
        assert client.version == NEW
        assert (await client.call("greet")).text == "Hello, Ada."
    assert b'"questions":{"who"' in app.sent
    assert b"inputRequests" not in app.sent


@pytest.mark.usefixtures("new_version")
async def test_a_task_that_asks_works_in_the_new_version() -> None:
    async with serving(make_server()) as address, Client(address.url, elicit=ada) as client:
        assert client.version == NEW
        assert (await client.call("greet_later")).text == "Hello, Ada."


@pytest.mark.usefixtures("new_version")
async def test_the_fast_path_reads_calls_of_the_new_version() -> None:
    async with serving(make_server()) as address:
        bodies = [(await post(address, NEW, "tools/call", {"name": "greet"})).json() for _ in range(2)]
    for body in bodies:
        assert body["result"]["resultType"] == "input_required"
        assert body["result"]["questions"] == {"who": QUESTION}


@pytest.mark.usefixtures("new_version")
async def test_a_method_that_the_new_version_dropped_is_not_found() -> None:
    params = {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "to", "value": "A"}}
    async with serving(make_server()) as address:
        refused = await post(address, NEW, "completion/complete", params)
        served = await post(address, CURRENT, "completion/complete", params)
        async with Client(address.url) as client:
            assert "completions" not in client.capabilities
            with pytest.raises(MethodNotFound, match=NEW):
                await client.complete("letter", "to", "A")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, -32601)
    assert served.json()["result"]["completion"]["values"] == ["Ada"]


@pytest.mark.usefixtures("new_version")
@pytest.mark.parametrize("version", [CURRENT, WITH_SESSIONS, "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_clients_of_other_versions_still_work(version: str) -> None:
    app = Recorder(make_server().asgi())
    async with serving(app) as address, Client(address.url, elicit=ada, protocol=version) as client:
        assert client.version == version
        assert (await client.call("greet")).text == "Hello, Ada."
    assert b'"questions"' not in app.sent


async def test_a_client_of_the_new_version_takes_the_newest_of_an_older_server() -> None:
    async with serving(make_server()) as address:  # made before the version was there
        with VERSIONS.register(ROW):
            async with Client(address.url, elicit=ada) as client:
                assert client.version == CURRENT
                assert (await client.call("greet")).text == "Hello, Ada."
            with pytest.raises(UnsupportedVersion):
                async with Client(address.url, protocol=NEW):
                    pass


async def test_a_client_of_today_takes_its_own_version_of_a_newer_server() -> None:
    with VERSIONS.register(ROW):
        server = make_server()
        app = server.asgi()
    async with serving(app) as address, Client(address.url, elicit=ada) as client:
        assert client.version == CURRENT
        assert (await client.call("greet")).text == "Hello, Ada."


async def test_the_new_version_works_without_http() -> None:
    with VERSIONS.register(ROW):
        async with Client(make_server(), elicit=ada) as client:
            assert client.version == NEW
            assert (await client.call("greet")).text == "Hello, Ada."
    assert NEW not in VERSIONS.advertised


def test_a_row_may_not_contradict_its_dialect() -> None:
    with pytest.raises(ValueError, match="ClientV2025 disagrees"):
        Version(NEW, V2027, ClientV2025, stateless=True)
