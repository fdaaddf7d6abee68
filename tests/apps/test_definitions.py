"""What cannot work is refused when it is defined, or when the server starts, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, DefinitionError, Server

URI = "ui://weather/view"

BAD_APPS: list[tuple[Any, dict[str, Any], str]] = [
    ("https://weather/view", {}, "begins with ui://"),
    ("ui://", {}, "begins with ui://"),
    (None, {}, "begins with ui://"),
    (URI, {"mime_type": "text/html"}, "unknown option 'mime_type'"),
    (URI, {"meta": {"ui": {}}}, "Pass csp=, permissions=, domain= or prefers_border="),
    (URI, {"csp": ["https://a.example"]}, "is no mapping"),
    (URI, {"csp": {"connectDomains": []}}, "Did you mean 'connect_domains'?"),
    (URI, {"csp": {"connect_domains": "https://a.example"}}, "is a list"),
    (URI, {"permissions": "camera"}, "is a list"),
    (URI, {"permissions": ["clipboardWrite"]}, "Did you mean 'clipboard_write'?"),
    (URI, {"permissions": ["usb"]}, "Use one of 'camera'"),
    (URI, {"domain": ""}, "is no domain"),
    (URI, {"domain": "a b"}, "is no domain"),
    (URI, {"prefers_border": "yes"}, "Use True, False or None"),
    (URI, {"cache_ttl": -1}, "is not a time"),
]

BAD_DOMAINS = [
    "api.example.com",
    "*",
    "https://*",
    "https:",
    "data:",
    "'unsafe-eval'",
    "https://a.example; script-src *",
    "https://a.example https://b.example",
    "https://a.example\nhttps://b.example",
    "https://a.example/path",
    "https://a.example/",
    "https://user@a.example",
    "https://a.*.example",
    "http://a.example",
    "ws://a.example",
    "ftp://a.example",
    "",
    7,
    None,
]
GOOD_DOMAINS = [
    "https://api.example.com",
    "https://*.example.com",
    "https://api.example.com:8443",
    "wss://live.example.com",
    "http://localhost:3000",
    "ws://127.0.0.1:3000",
]

BAD_TOOLS: list[tuple[dict[str, Any], str]] = [
    ({"ui": "https://weather/view"}, "begins with ui://"),
    ({"ui": "ui://weather/{city}"}, "whose variables no host can fill in"),
    ({"visibility": "app"}, "is a list"),
    ({"visibility": []}, "nobody could call the tool"),
    ({"visibility": ["apps"]}, "Did you mean 'app'?"),
    ({"ui": URI, "meta": {"ui": {"resourceUri": URI}}}, "Pass ui= and visibility="),
    ({"meta": {"ui": {"resourceUri": URI}}}, "Pass ui= and visibility="),
]


def page() -> str:
    return "<p>"


@pytest.mark.parametrize(("uri", "options", "message"), BAD_APPS)
def test_an_app_that_cannot_work_is_refused(uri: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Server("weather").add_ui(page, uri, **options)
    assert message in str(refused.value)


@pytest.mark.parametrize("domain", BAD_DOMAINS)
def test_a_domain_that_is_no_origin_is_refused(domain: Any) -> None:
    with pytest.raises(DefinitionError, match="connect_domains"):
        Server("weather").add_ui(page, URI, csp={"connect_domains": [domain]})


def test_an_origin_is_taken_where_it_belongs() -> None:
    Server("weather").add_ui(page, URI, csp={"connect_domains": GOOD_DOMAINS})
    with pytest.raises(DefinitionError, match=r"wss:// belongs in connect_domains"):
        Server("weather").add_ui(page, URI, csp={"resource_domains": ["wss://live.example.com"]})


@pytest.mark.parametrize(("options", "message"), BAD_TOOLS)
def test_a_tool_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Server("weather").add_tool(page, **options)
    assert message in str(refused.value)


def test_sources_that_are_no_html_are_refused(tmp_path: Path) -> None:
    server = Server("weather")
    with pytest.raises(DefinitionError, match=r"For a file, pass a path: Path\('view.html'\)"):
        server.add_ui("view.html", URI)
    with pytest.raises(DefinitionError, match="cannot be read"):
        server.add_ui(tmp_path / "view.html", URI)
    (tmp_path / "view.html").write_bytes(b"\xff\xfe")
    with pytest.raises(DefinitionError, match="cannot be read"):
        server.add_ui(tmp_path / "view.html", URI)
    with pytest.raises(DefinitionError, match="neither a function"):
        server.add_ui(7, URI)  # type: ignore[arg-type]


def test_a_plain_resource_cannot_have_the_scheme_of_apps() -> None:
    with pytest.raises(DefinitionError, match=r"Register one with @server.ui\('ui://weather/view'\)"):
        Server("weather").add_resource(page, URI, mime_type="text/html")


async def test_a_server_does_not_start_without_the_app_of_a_tool() -> None:
    server = Server("weather")
    server.add_tool(page, name="forecast", ui=URI)
    with pytest.raises(DefinitionError, match=r"The tool 'forecast' has ui='ui://weather/view'"):
        async with server.running():
            pass
    server.add_ui(page, URI)
    async with server.running():
        with pytest.raises(DefinitionError, match="no App at this address"):
            server.add_tool(page, name="other", ui="ui://weather/other")
        assert server.tools == ("forecast",)
    async with Client(server) as client:
        assert (await client.call("forecast")).text == "<p>"


async def test_a_server_does_not_start_with_a_tool_that_no_app_can_call() -> None:
    server = Server("weather")
    server.add_tool(page, name="refresh", visibility=["app"])
    with pytest.raises(DefinitionError, match="is for Apps only, and the server has no App"):
        async with server.running():
            pass
    server.add_ui(page, URI)
    async with server.running():
        pass
