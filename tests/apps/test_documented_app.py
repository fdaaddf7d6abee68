"""The App in the documentation works in a host of the official package."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Client
from tests.apps.browser import host_for
from tests.pages import blocks
from tests.support.process import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_app_shows_the_result_of_its_tool(browser: Any) -> None:
    defined: dict[str, Any] = {}
    first = next(block for block in blocks(ROOT / "docs" / "howto" / "apps.md") if block.language == "python")
    exec(first.text, defined)
    async with Client(defined["server"], shows_ui=True) as client, host_for(browser, client) as host:
        (tool,) = await client.tools()
        assert tool.ui is not None
        page = (await client.read(tool.ui)).contents[0].text
        result = await client.call("forecast", city="Oslo")
        await host.show(page, result={"content": [], "structuredContent": result.data})
        await host.app.locator("main div").first.wait_for()
        assert await host.app.locator("main div").all_inner_texts() == ["12 °C", "14 °C", "11 °C"]
        assert (host.outside, host.messages) == ([], [])
        assert (await host.seen())["errors"] == []
