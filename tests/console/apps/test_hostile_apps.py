"""An App that reaches for the console, for storage, for the network or for other windows gets nowhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Error

from antiphon import Server
from tests.console.apps.app_page import AppPage, app_page
from tests.support.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = (Path(__file__).parent / "hostile.html").read_text(encoding="utf-8")
LEAVES = {
    "location": "location.href = OUT",
    "form": "document.body.innerHTML = `<form action=${OUT}>`; document.forms[0].submit()",
    "refresh": "document.head.innerHTML = `<meta http-equiv=refresh content='0;url=${OUT}'>`",
    "console": "location.href = 'CONSOLE/inbox'",
}


class Outside:
    """A server that nobody should reach. It counts the connections."""

    def __init__(self) -> None:
        self.connections = 0

    async def accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(
            b"HTTP/1.1 200 OK\\r\\naccess-control-allow-origin: *\\r\\ncontent-length: 0\\r\\n\\r\\n"
        )
        await writer.drain()
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def outside() -> AsyncIterator[tuple[Outside, str]]:
    counter = Outside()
    listening = await asyncio.start_server(counter.accept, "127.0.0.1", 0)
    async with listening:
        yield counter, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(chromium: Any, outside: tuple[Outside, str]) -> AsyncIterator[AppPage]:
    server = Server("hostile")
    replaced: dict[str, str] = {"OUTSIDE": outside[1]}

    def filled(html: str) -> str:
        for name, value in replaced.items():
            html = html.replace(name, value)
        return html

    server.add_ui(lambda: filled(HOSTILE), "ui://hostile/all")
    for name, script in LEAVES.items():
        script = f"addEventListener('load', () => {{ {script} }})"
        html = f"<!doctype html><body><script>const OUT = 'OUTSIDE'; {script}</script>"
        server.add_ui(lambda html=html: filled(html), f"ui://hostile/{name}")
    server.add_ui("<!doctype html><body>quiet", "ui://hostile/quiet")
    server.add_tool(lambda: "fresh", name="refresh", visibility=["app"])
    async with app_page(chromium, {"hostile": server}) as page:
        replaced["CONSOLE"] = page.console.url
        yield page


async def test_nothing_gets_through(page: AppPage, outside: tuple[Outside, str]) -> None:
    before = page.page.url
    await page.show("hostile", "ui://hostile/all")
    await page.wait_in_app("window.isAnswered")
    assert await page.in_app("gotThrough") == []
    assert len(await page.in_app("refused")) == len(re.findall(r"\n    (?:attempt|tries)\(", HOSTILE))
    assert outside[0].connections == 0
    assert page.page.url == before
    assert len(page.page.context.pages) == 1
    assert await page.activity() == []


@pytest.mark.parametrize("way", LEAVES)
async def test_an_app_cannot_leave_its_frame(page: AppPage, outside: tuple[Outside, str], way: str) -> None:
    before = page.page.url
    await page.show("hostile", f"ui://hostile/{way}")
    await page.page.locator("section.app iframe").wait_for()
    await until(lambda: any("Content Security Policy" in each for each in page.problems))
    assert outside[0].connections == 0
    assert page.page.url == before
    assert all(outside[1] not in frame.url for frame in page.page.frames)


async def test_an_app_that_never_returns_does_not_block_the_console(page: AppPage) -> None:
    await page.show("hostile", "ui://hostile/quiet")
    running = asyncio.create_task(page.in_app("() => { console.error('busy'); for (;;) {} }"))
    await until(lambda: any("busy" in each for each in page.problems))
    assert await page.call("() => 'alive'") == "alive"
    assert not running.done()
    await page.page.get_by_role("link", name="Tasks").click()
    await page.page.get_by_role("heading", name="Tasks").wait_for()
    with pytest.raises(Error, match="detached"):
        await running
