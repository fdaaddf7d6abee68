"""Apps and the official Python SDK: its client on our server, and our client on its server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client as OfficialClient
from mcp.client.extension import advertise
from mcp.server.apps import (
    APP_MIME_TYPE,
    EXTENSION_ID,
    Apps,
    ResourceCsp,
    ResourcePermissions,
    client_supports_apps,
)
from mcp.server.mcpserver import Context as OfficialContext
from mcp.server.mcpserver import MCPServer

from antiphon import Artifact, Client, Context, Server
from antiphon.model.ui import APP_MIME_TYPE as OUR_MIME_TYPE
from antiphon.model.ui import UI_EXTENSION, UiCsp, UiSettings
from tests.patterns.conftest import in_a_thread
from tests.support.serving import serving

HTML = "<!doctype html><title>Clock</title>"
SHOWS_APPS = {"mimeTypes": [APP_MIME_TYPE]}


def ours() -> Server:
    server = Server("clock")
    server.add_ui(
        HTML, "ui://clock/app", csp={"connect_domains": ["https://api.example.com"]}, prefers_border=True
    )

    @server.tool(ui="ui://clock/app")
    async def now(ctx: Context) -> str:
        return "as shown" if ctx.shows_ui else "twelve o'clock"

    @server.tool(ui="ui://clock/app", visibility=["app"])
    async def tick() -> str:
        return "tick"

    @server.tool(ui=server.artifact_ui)
    async def history() -> Artifact[list[dict[str, int]]]:
        return Artifact([{"hour": 12}])

    return server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where our server is."""
    with in_a_thread(ours()) as address:
        yield address.url


@pytest.fixture(params=["legacy", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    """Which version the official client speaks."""
    return str(request.param)


def test_both_libraries_use_the_same_names() -> None:
    assert (EXTENSION_ID, APP_MIME_TYPE) == (UI_EXTENSION, OUR_MIME_TYPE)


async def test_the_official_client_as_a_host(url: str, mode: str) -> None:
    shown = advertise(EXTENSION_ID, SHOWS_APPS)
    async with OfficialClient(url, mode=mode, extensions=[shown], read_timeout_seconds=60) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"now", "tick", "history"}
        assert tools["tick"].meta == {"ui": {"resourceUri": "ui://clock/app", "visibility": ["app"]}}
        (contents,) = (await client.read_resource(tools["tick"].meta["ui"]["resourceUri"])).contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.text, contents.mime_type) == (HTML, APP_MIME_TYPE)
        csp = {"connectDomains": ["https://api.example.com"]}
        assert contents.meta == {"ui": {"csp": csp, "prefersBorder": True}}
        assert _text(await client.call_tool("now", {})) == "as shown"
        for uri in ("ui://clock/artifact", (await client.call_tool("history", {})).meta["ui_uri"]):
            (page,) = (await client.read_resource(uri)).contents
            assert page.mime_type == APP_MIME_TYPE


async def test_the_official_client_without_apps(url: str, mode: str) -> None:
    async with OfficialClient(url, mode=mode, read_timeout_seconds=60) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"now", "history"}
        assert _text(await client.call_tool("now", {})) == "twelve o'clock"
        uri = (await client.call_tool("history", {})).meta["ui_uri"]
        (contents,) = (await client.read_resource(uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.mime_type, contents.text) == ("application/json", '[{"hour":12}]')


async def test_the_official_client_sees_the_extension(url: str) -> None:
    async with OfficialClient(url, mode="legacy", read_timeout_seconds=60) as client:
        capabilities = client.server_capabilities
        assert capabilities is not None
        declared: Any = capabilities.model_dump(by_alias=True)["extensions"]
        assert declared == {EXTENSION_ID: {**SHOWS_APPS, "elicitation": {}}}


async def test_our_client_on_a_server_of_the_official_sdk() -> None:
    apps = Apps()

    @apps.tool(resource_uri="ui://clock/app", visibility=["app"])
    def now(ctx: OfficialContext) -> str:
        return "as shown" if client_supports_apps(ctx) else "twelve o'clock"

    apps.add_html_resource(
        "ui://clock/app",
        HTML,
        csp=ResourceCsp(resource_domains=["https://cdn.example.com"]),
        permissions=ResourcePermissions(clipboard_write={}),
        prefers_border=False,
    )
    app = MCPServer("clock", extensions=[apps]).streamable_http_app()
    expected = UiSettings(
        csp=UiCsp(resource_domains=("https://cdn.example.com",)),
        permissions=("clipboard_write",),
        prefers_border=False,
    )
    async with serving(app) as address:
        url = address.url
        async with Client(url, shows_ui=True) as client:
            assert client.offers.apps
            (tool,) = await client.tools()
            assert (tool.ui, tool.visibility) == ("ui://clock/app", ("app",))
            (contents,) = (await client.read(tool.ui)).contents
            assert contents.ui == expected
            (listed,) = await client.resources()
            assert listed.ui == expected
            assert (await client.call("now")).text == "as shown"
        async with Client(url) as client:
            assert (await client.call("now")).text == "twelve o'clock"


def _text(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text
