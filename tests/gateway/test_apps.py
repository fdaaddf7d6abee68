"""An MCP App of a server behind a gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Server
from tests.apps.test_apps import MIME, PAGE, SETTINGS, weather
from tests.support.process import environment
from tests.support.serving import serving


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_an_app_is_offered_and_read_and_its_server_knows_who_shows_it(protocol: str) -> None:
    async with serving(weather(**SETTINGS)) as upstream:
        gateway = Server("gateway")
        gateway.mount("w", upstream.url)
        async with (
            Client(gateway, protocol=protocol, shows_ui=True) as host,
            Client(gateway, protocol=protocol) as other,
        ):
            tools: dict[str, Any] = {tool.name: tool for tool in await host.tools()}
            assert set(tools) == {"w_forecast", "w_refresh"}
            assert [tool.name for tool in await other.tools()] == ["w_forecast"]
            assert (await host.call("w_refresh")).text == "Still sunny."
            assert tools["w_forecast"].meta["ui"]["resourceUri"] == "ui://weather/view"
            [contents] = (await host.read("ui://weather/view")).contents
            assert (contents.mime_type, contents.text) == (MIME, PAGE)  # type: ignore[union-attr]
            assert contents.meta is not None
            assert contents.meta["ui"]["prefersBorder"] is False
            assert (await host.call("w_forecast")).text == "Sunny, as shown."
            assert (await other.call("w_forecast")).text == "Sunny, 22 degrees."


async def test_a_command_that_speaks_in_a_session_offers_its_apps(tmp_path: Path) -> None:
    file = tmp_path / "weather.py"
    file.write_text("from tests.apps.test_apps import weather\n\nserver = weather()\n")
    gateway = Server("gateway")
    gateway.mount("w", [sys.executable, "-m", "antiphon", "run", str(file), "--stdio"], env=environment())
    async with Client(gateway, shows_ui=True) as host:
        assert {tool.name for tool in await host.tools()} == {"w_forecast", "w_refresh"}
        # The declaration is that of the session, which callers of both kinds use.
        assert (await host.call("w_forecast")).text == "Sunny, as shown."
