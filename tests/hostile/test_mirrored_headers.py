"""Headers that repeat the body, on which a gateway may decide: one that is there says what the body says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import pytest
import pytest_asyncio
from pydantic import Field

from antiphon import Server
from tests.support import http
from tests.support.http import Response
from tests.support.serving import WAYS, Address
from tests.support.speakers import DIALECTS, Bare, Modern, Session, Speaker, speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")

Region = Annotated[str | None, Field(json_schema_extra={"x-mcp-header": "Region", "type": "string"})]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(WAYS))
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Address]:
    server = Server("tests")

    @server.tool
    async def harmless() -> str:
        return "done"

    @server.tool
    async def routed(region: Region = None) -> str:
        return f"in {region}"

    @server.resource("u://r")
    async def resource() -> str:
        return "r"

    @server.prompt
    async def prompt() -> str:
        return "p"

    async with WAYS[request.param](server) as address:
        yield address


def refused(response: Response) -> bool:
    """Return whether a response says that its headers contradict the body."""
    if response.status == 200 and "result" in response.frame:
        return False
    assert (response.status, response.error["code"]) == (400, -32020), response
    assert "header" in response.error["message"].lower()
    return True


CALL: Mapping[str, Any] = {"name": "harmless", "arguments": {}}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_method_in_a_header_is_compared_in_every_version(served: Address, dialect: str) -> None:
    client = await speaker(dialect, served.port)
    for _ in range(2):  # the second time, the server may have seen the same head before
        assert not refused(await client.ask("tools/call", CALL, headers={"mcp-method": "tools/call"}))
        assert not refused(await client.ask("tools/list", headers={"mcp-method": " tools/list\t"}))
        for given in ("tools/list", "", "Tools/Call", "=?base64?dG9vbHMvY2FsbA==?="):
            assert refused(await client.ask("tools/call", CALL, headers={"mcp-method": given})), given


NAMED: list[tuple[str, Mapping[str, Any], str]] = [
    ("tools/call", CALL, "harmless"),
    ("resources/read", {"uri": "u://r"}, "u://r"),
    ("prompts/get", {"name": "prompt", "arguments": {}}, "prompt"),
]


@pytest.mark.parametrize(("method", "params", "name"), NAMED, ids=[row[0] for row in NAMED])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_name_in_a_header_is_compared_in_every_version(
    served: Address, dialect: str, method: str, params: Mapping[str, Any], name: str
) -> None:
    client = await speaker(dialect, served.port)
    for _ in range(2):
        assert not refused(await client.ask(method, params, headers={"mcp-name": name}))
        for given in ("other", "", name.upper(), "=?base64?b3RoZXI=?=", "=?base64?!?="):
            assert refused(await client.ask(method, params, headers={"mcp-name": given})), given


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_message_that_names_nothing_has_no_name_in_a_header(served: Address, dialect: str) -> None:
    client = await speaker(dialect, served.port)
    assert refused(await client.ask("tools/list", headers={"mcp-name": "harmless"}))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("arguments", [{}, {"region": None}], ids=["absent", "null"])
async def test_a_header_for_an_argument_that_is_not_there_is_refused(
    served: Address, dialect: str, arguments: Mapping[str, Any]
) -> None:
    client = await speaker(dialect, served.port)
    call = {"name": "routed", "arguments": arguments}
    assert not refused(await client.ask("tools/call", call))
    for given in ("eu", "", "null", "None", "=?base64?ZXU=?="):
        assert refused(await client.ask("tools/call", call, headers={"mcp-param-region": given})), given
    assert not refused(await client.ask("tools/call", call, headers={"mcp-param-other": "eu"}))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_header_for_an_argument_that_no_tool_declares_says_nothing_and_is_ignored(
    served: Address, dialect: str
) -> None:
    client = await speaker(dialect, served.port)
    routed = {"name": "routed", "arguments": {"region": "eu"}}
    for call, more in ((CALL, {"mcp-param-region": "eu"}), (routed, {"mcp-param-region": "eu"})):
        for given in ("eu", "", "=?base64?!?="):
            headers = {**more, "mcp-param-other": given}
            assert not refused(await client.ask("tools/call", call, headers=headers))


@pytest.mark.parametrize("name", ["mcp-method", "mcp-name"])
async def test_a_request_without_a_message_has_no_method_and_no_name_in_a_header(
    served: Address, name: str
) -> None:
    session = Session(served.port)
    await session.open()
    for method in ("GET", "DELETE"):
        for given in ("ping", ""):
            headers = {**session.headers, "accept": "text/event-stream", name: given}
            assert refused(await http.request(served.port, method, headers)), (method, given)
    assert (await session.end()).status == 204


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_header_for_an_argument_is_compared_in_every_version_and_required_in_the_last(
    served: Address, dialect: str
) -> None:
    client = await speaker(dialect, served.port)
    call = {"name": "routed", "arguments": {"region": "eu"}}
    assert not refused(await client.ask("tools/call", call, headers={"mcp-param-region": "eu"}))
    assert refused(await client.ask("tools/call", call, headers={"mcp-param-region": "us"}))
    assert refused(await client.ask("tools/call", call)) == (dialect == "modern")


@pytest.mark.parametrize("kind", [Modern, Bare, Session])
async def test_messages_without_an_answer_are_compared_too(served: Address, kind: type[Speaker]) -> None:
    client = kind(served.port)
    if isinstance(client, Session):
        await client.open()
    headers, frame = client.build("notifications/cancelled", {"requestId": 1})
    del frame["id"]

    async def tell(frame: Mapping[str, Any], **more: str) -> Response:
        given = {**headers, **{name.replace("_", "-"): value for name, value in more.items()}}
        return await http.request(served.port, "POST", given, json.dumps(frame).encode())

    assert (await tell(frame, mcp_method="notifications/cancelled")).status == 202
    assert refused(await tell(frame, mcp_method="ping"))
    assert refused(await tell(frame, mcp_method="notifications/cancelled", mcp_name="harmless"))
    if kind is Session:
        response = {"jsonrpc": "2.0", "id": 7, "result": {}}
        unasked = await tell(response)  # refused as well, for another reason
        assert (unasked.status, unasked.error["code"]) == (400, -32600)
        assert refused(await tell(response, mcp_method="ping"))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_of_two_equal_keys_the_last_one_counts_and_the_headers_have_to_say_so(
    served: Address, dialect: str
) -> None:
    client = await speaker(dialect, served.port)
    headers, frame = client.build("tools/call", {"name": "NAME", "arguments": {"region": "eu"}})
    body = json.dumps(frame).replace('"name": "NAME"', '"name": "harmless", "name": "routed"')
    body = body.replace('"method"', '"method": "tools/list", "method"').replace(
        '"region"', '"region": "us", "region"'
    )

    async def call(method: str, name: str, region: str, body: str = body) -> Response:
        named = {"mcp-method": method, "mcp-name": name, "mcp-param-region": region}
        return await http.request(served.port, "POST", {**headers, **named}, body.encode())

    for _ in range(2):
        assert (await call("tools/call", "routed", "eu")).text == "in eu"
        assert refused(await call("tools/list", "routed", "eu"))
        assert refused(await call("tools/call", "harmless", "eu"))
        assert refused(await call("tools/call", "routed", "us"))
        short = json.dumps(client.build("tools/call", {"name": "NAME", "arguments": {}})[1])
        short = short.replace('"name": "NAME"', '"name": "routed", "name": "harmless"')
        assert (await call("tools/call", "harmless", "-", short)).text == "done"
        assert refused(await call("tools/call", "routed", "-", short))
