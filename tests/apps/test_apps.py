"""Apps on the wire: their resources and metadata, in every version, and who is offered their tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import BlobContents, Client, Context, InternalError, Principal, RequestError, Server
from antiphon.model.ui import UiCsp, UiSettings
from antiphon.wire.versions import VERSIONS

MIME = "text/html;profile=mcp-app"
PAGE = "<!doctype html><title>Weather</title>"
EXTENSION = "io.modelcontextprotocol/ui"


@pytest.fixture(params=VERSIONS.spoken_by_client)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each version that a client speaks."""
    return str(request.param)


def weather(**options: Any) -> Server:
    """Return a server with an App, a tool that it shows, and a tool that only the App calls."""
    server = Server("weather")

    @server.ui("ui://weather/view", **options)
    async def view() -> str:
        """The weather as a picture."""
        return PAGE

    @server.tool(ui="ui://weather/view")
    async def forecast(ctx: Context) -> str:
        return "Sunny, as shown." if ctx.shows_ui else "Sunny, 22 degrees."

    @server.tool(ui="ui://weather/view", visibility=["app"])
    async def refresh() -> str:
        return "Still sunny."

    return server


SETTINGS: dict[str, Any] = {
    "csp": {"connect_domains": ["https://api.example.com"], "resource_domains": ["https://*.example.com"]},
    "permissions": ["geolocation", "clipboard_write"],
    "domain": "weather.host.example",
    "prefers_border": False,
}
ON_THE_WIRE = {
    "csp": {"connectDomains": ["https://api.example.com"], "resourceDomains": ["https://*.example.com"]},
    "permissions": {"geolocation": {}, "clipboardWrite": {}},
    "domain": "weather.host.example",
    "prefersBorder": False,
}


async def test_the_contents_of_an_app_have_its_media_type_and_its_settings(protocol: str) -> None:
    async with Client(weather(**SETTINGS), protocol=protocol, shows_ui=True) as client:
        (contents,) = (await client.read("ui://weather/view")).contents
        (listed,) = await client.resources()
    assert (contents.uri, contents.text, contents.mime_type) == ("ui://weather/view", PAGE, MIME)
    assert contents.meta == {"ui": ON_THE_WIRE}
    assert (listed.name, listed.mime_type, listed.meta) == ("view", MIME, {"ui": ON_THE_WIRE})
    assert contents.ui == listed.ui
    assert contents.ui == UiSettings(
        csp=UiCsp(connect_domains=("https://api.example.com",), resource_domains=("https://*.example.com",)),
        permissions=("geolocation", "clipboard_write"),
        domain="weather.host.example",
        prefers_border=False,
    )


async def test_an_app_without_settings_has_no_metadata() -> None:
    async with Client(weather()) as client:
        (contents,) = (await client.read("ui://weather/view")).contents
    assert contents.meta is None
    assert contents.ui is None


async def test_both_sides_declare_the_extension_in_every_version(protocol: str) -> None:
    async with Client(weather(), protocol=protocol, shows_ui=True) as client:
        assert client.capabilities["extensions"][EXTENSION] == {"mimeTypes": [MIME], "elicitation": {}}
        assert client.offers.apps
        assert (await client.call("forecast")).text == "Sunny, as shown."
    async with Client(weather(), protocol=protocol) as client:
        assert (await client.call("forecast")).text == "Sunny, 22 degrees."
    plain = Server("plain")
    plain.add_tool(lambda: "x", name="x")
    async with Client(plain, protocol=protocol) as client:
        assert EXTENSION not in client.capabilities.get("extensions", {})
        assert not client.offers.apps


@pytest.mark.parametrize("settings", [{}, {"mimeTypes": ["text/html"]}, {"mimeTypes": MIME}, None, "yes"])
async def test_a_client_that_does_not_name_the_media_type_shows_no_apps(settings: Any) -> None:
    declared = {"extensions": {EXTENSION: settings}}
    async with Client(weather(), capabilities=declared) as client:
        assert (await client.call("forecast")).text == "Sunny, 22 degrees."


async def test_a_host_s_own_settings_and_extensions_are_kept() -> None:
    own = {EXTENSION: {"mimeTypes": [MIME, "text/x"]}, "com.example/x": {}}
    server = weather()

    @server.tool
    async def declared(ctx: Context) -> dict[str, Any]:
        return dict(ctx.capabilities["extensions"])

    async with Client(server, capabilities={"extensions": own}, shows_ui=True) as client:
        seen = (await client.call("declared")).data
    assert {key: seen[key] for key in own} == own


async def test_hosts_get_every_tool_and_other_clients_none_that_only_apps_call(protocol: str) -> None:
    async with Client(weather(), protocol=protocol, shows_ui=True) as host:
        tools = {tool.name: tool for tool in await host.tools()}
        assert tools["forecast"].meta == {"ui": {"resourceUri": "ui://weather/view"}}
        assert tools["refresh"].meta == {"ui": {"resourceUri": "ui://weather/view", "visibility": ["app"]}}
        assert [tool.ui for tool in tools.values()] == ["ui://weather/view"] * 2
        assert [tool.visibility for tool in tools.values()] == [("model", "app"), ("app",)]
        assert (await host.call("refresh")).text == "Still sunny."
    async with Client(weather(), protocol=protocol) as client:
        assert [tool.name for tool in await client.tools()] == ["forecast"]
        assert (await client.call("refresh")).text == "Still sunny."  # scopes protect a tool, not the list


async def test_tools_of_apps_and_forbidden_tools_are_hidden_together() -> None:
    server = Server("weather", hide_forbidden=True)
    server.add_ui(PAGE, "ui://weather/view")
    for name, options in {"all": {}, "app": {"visibility": ["app"]}}.items():
        server.add_tool(lambda: "x", name=name, **options)
        server.add_tool(lambda: "x", name=f"{name}_scoped", scopes=["write"], **options)
    found = {}
    for shows in (True, False):
        for scopes in ((), ("write",)):
            principal = Principal("ada", scopes=frozenset(scopes))
            async with Client(server, principal=principal, shows_ui=shows) as client:
                found[shows, scopes] = [tool.name for tool in await client.tools()]
    assert found == {
        (True, ()): ["all", "app"],
        (True, ("write",)): ["all", "all_scoped", "app", "app_scoped"],
        (False, ()): ["all"],
        (False, ("write",)): ["all", "all_scoped"],
    }


async def test_an_app_comes_from_a_file_that_may_change_or_from_text(tmp_path: Path) -> None:
    file = tmp_path / "view.html"
    file.write_text("<p>one", encoding="utf-8")
    server = Server("weather")
    server.add_ui(file, "ui://weather/from-file", prefers_border=True)
    server.add_ui("<p>text", "ui://weather/text", title="Text")
    async with Client(server) as client:
        assert [(each.name, each.title) for each in await client.resources()] == [
            ("from-file", None),
            ("text", "Text"),
        ]
        assert (await client.read("ui://weather/text")).contents[0].text == "<p>text"
        assert (await client.read("ui://weather/from-file")).contents[0].text == "<p>one"
        file.write_text("<p>two", encoding="utf-8")
        (contents,) = (await client.read("ui://weather/from-file")).contents
        assert (contents.text, contents.meta) == ("<p>two", {"ui": {"prefersBorder": True}})
        file.unlink()
        with pytest.raises(InternalError):
            await client.read("ui://weather/from-file")


async def test_an_app_can_have_variables_a_context_and_bytes() -> None:
    server = Server("weather")

    @server.ui("ui://weather/{city}", permissions=["camera"])
    async def city(city: str, ctx: Context) -> bytes:
        return f"<p>{city} {ctx.shows_ui}".encode()

    server.add_tool(lambda: "x", name="oslo", ui="ui://weather/oslo")
    async with Client(server, shows_ui=True) as client:
        (contents,) = (await client.read("ui://weather/oslo")).contents
        assert (contents.raw, contents.mime_type) == (b"<p>oslo True", MIME)
        assert isinstance(contents, BlobContents)
        assert contents.meta == {"ui": {"permissions": {"camera": {}}}}
        (template,) = await client.templates()
        assert contents.ui == template.ui == UiSettings(permissions=("camera",))
        assert client.offers.apps


async def test_a_function_that_returns_no_html_is_an_error_of_the_server() -> None:
    server = Server("weather")

    @server.ui("ui://weather/view")
    async def view() -> dict[str, int]:
        return {"a": 1}

    async with Client(server) as client:
        with pytest.raises(RequestError, match="log has the details"):
            await client.read("ui://weather/view")
