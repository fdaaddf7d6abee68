"""The App at `ui://server/id` shows an artifact; a client that shows no Apps reads the artifact there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from antiphon import Artifact, Client, InvalidParams, Principal, Server
from antiphon.errors import RequestError
from antiphon.wire.versions import VERSIONS

MIME = "text/html;profile=mcp-app"


def make(**options: Any) -> Server:
    """Return a server with a tool that makes artifacts, shown by the App of the library."""
    server = Server("shop", **options)

    @server.tool(ui=server.artifact_ui)
    async def orders(title: str = "Orders") -> Artifact[list[dict[str, int]]]:
        return Artifact([{"id": 1, "total": 30}], title=title)

    return server


class Outline(HTMLParser):
    """The elements of a document and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    @property
    def body(self) -> Mapping[str, str | None]:
        """The attributes of the body."""
        return next(attributes for tag, attributes in self.found if tag == "body")


@pytest.mark.parametrize("protocol", VERSIONS.spoken_by_client)
async def test_a_host_reads_an_app_and_other_clients_the_artifact(protocol: str) -> None:
    server = make()
    async with Client(server, protocol=protocol, shows_ui=True) as host:
        result = await host.call("orders")
        uri = result.meta["ui_uri"]
        (page,) = (await host.read(uri)).contents
        assert (page.uri, page.mime_type, page.meta) == (uri, MIME, {"ui": {"prefersBorder": True}})
        address = Outline(page.text).body["data-uri"]
        assert address == uri.replace("ui://", "artifact://")
        assert json.loads((await host.read(address)).contents[0].text) == [{"id": 1, "total": 30}]
        assert host.offers.apps
    async with Client(server, protocol=protocol) as client:
        uri = (await client.call("orders")).meta["ui_uri"]
        (contents,) = (await client.read(uri)).contents
        assert (contents.mime_type, json.loads(contents.text)) == (
            "application/json",
            [{"id": 1, "total": 30}],
        )


async def test_apps_of_the_author_and_of_artifacts_share_the_name_of_the_server() -> None:
    server = make()
    server.add_ui(lambda page: f"<p>{page}", "ui://shop/{page}")
    server.add_ui("<p>cart", "ui://shop/cart")
    async with Client(server, shows_ui=True) as host:
        uri = (await host.call("orders")).meta["ui_uri"]
        assert "data-uri" in (await host.read(uri)).contents[0].text
        assert (await host.read("ui://shop/cart")).contents[0].text == "<p>cart"
        assert (await host.read("ui://shop/other")).contents[0].text == "<p>other"


async def test_tools_refer_to_one_app_that_is_the_same_for_all() -> None:
    async with Client(make(), shows_ui=True) as host:
        (tool,) = await host.tools()
        assert tool.ui == "ui://shop/artifact"
        (page,) = (await host.read(tool.ui)).contents
    assert (page.uri, page.mime_type) == ("ui://shop/artifact", MIME)
    assert Outline(page.text).body == {"data-uri": "", "data-title": ""}


async def test_the_document_loads_nothing_and_contains_nothing_of_the_artifact() -> None:
    async with Client(make(), shows_ui=True) as host:
        result = await host.call("orders", title='"><script>alert(1)</script>')
        text = (await host.read(result.meta["ui_uri"])).contents[0].text
    outline = Outline(text)
    assert outline.body["data-title"] == '"><script>alert(1)</script>'
    assert [tag for tag, _ in outline.found if tag in ("script", "style")] == ["style", "script"]
    assert not [tag for tag, attributes in outline.found if {"src", "href", "onclick"} & set(attributes)]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|import\(", text)
    assert len(text.encode()) < 40_000


async def test_an_app_is_for_the_caller_who_has_the_artifact() -> None:
    server = make()
    async with (
        Client(server, principal="ada", shows_ui=True) as ada,
        Client(server, principal="bob", shows_ui=True) as bob,
    ):
        uri = (await ada.call("orders")).meta["ui_uri"]
        await ada.read(uri)
        with pytest.raises(InvalidParams, match="Resource not found"):
            await bob.read(uri)
        with pytest.raises(InvalidParams, match="Resource not found"):
            await bob.read("ui://shop/" + "0" * 32)


async def test_an_app_needs_the_scopes_of_its_artifact() -> None:
    server = Server("shop")

    @server.tool(scopes=["orders:read"])
    async def orders() -> Artifact[str]:
        return Artifact("secret")

    allowed = Principal("ada", scopes=frozenset({"orders:read"}))
    async with (
        Client(server, principal=allowed, shows_ui=True) as ada,
        Client(server, principal="ada", shows_ui=True) as other,
    ):
        uri = (await ada.call("orders")).meta["ui_uri"]
        await ada.read(uri)
        with pytest.raises(RequestError, match="orders:read"):
            await other.read(uri)
