"""A page of the console in Chromium, with one App on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from antiphon.client.client import Client
from antiphon.console.sources import ServerSource
from tests.apps.browser import WAIT_MS, borrowed
from tests.console.browser import open_tab
from tests.console.support import RunningConsole, serving_console

__all__ = ["AppPage", "app_page"]

SHOW = """
async (options) => {
  const load = (name) => import(new URL(name, document.baseURI).href);
  const [{ renderApp }, { confirm }, { signal }] = await Promise.all(
    ["apps/render.js", "lib/dialog.js", "lib/state.js"].map(load));
  const session = await (await fetch(new URL("api/session", document.baseURI))).json();
  const app = (window.app = { session, confirm, theme: signal("light") });
  await window.view?.close();
  const shown = (window.view = renderApp({ app, ...options }));
  document.querySelector("main").replaceChildren(shown.node);
}
"""


class AppPage:
    """The page, and the App on it."""

    def __init__(self, page: Any, console: RunningConsole, problems: list[str]) -> None:
        self.page = page
        self.console = console
        self.problems = problems
        """The errors on the browser's console, such as violations of a policy."""
        self.node = page.locator("section.app")
        self.app = page.frame_locator("section.app iframe").frame_locator("iframe")
        """The App, inside the page of the sandbox."""

    async def show(self, server: str, uri: str, **options: Any) -> None:
        """Show an App of a server, in place of the one before."""
        self.problems.clear()
        await self.page.evaluate(SHOW, {"server": server, "uri": uri, **options})

    async def call(self, script: str, argument: Any = None) -> Any:
        """Run a script with the view of the App as `view`."""
        return await self.page.evaluate(script, argument)

    async def in_app(self, script: str) -> Any:
        """Run a script in the App."""
        return await (await self._frame()).evaluate(script)

    async def wait_in_app(self, condition: str) -> None:
        """Wait until a condition holds in the App."""
        frame = await self._frame()
        async with asyncio.timeout(WAIT_MS / 1000):
            # The policy forbids to evaluate text, which is how Playwright waits.
            await frame.evaluate(
                f"new Promise(async (yes) => {{ while (!(await ({condition}))) "
                "await new Promise((next) => setTimeout(next, 50)); yes(); })"
            )

    async def _frame(self) -> Any:
        await self.app.locator("body").wait_for(state="attached")
        # By its element: for a moment, the page may still have the frames of the App before.
        sandbox = await (await self.page.locator("section.app iframe").element_handle()).content_frame()
        return await (await sandbox.locator("iframe").element_handle()).content_frame()

    async def activity(self) -> list[str]:
        """Return the lines that the console shows of what the App did."""
        return [text.strip() for text in await self.node.locator("details li").all_text_contents()]


@asynccontextmanager
async def app_page(chromium: Any, targets: Mapping[str, Any], **options: Any) -> AsyncIterator[AppPage]:
    """Open a console of these servers in a browser."""

    def source(name: str, target: Any) -> ServerSource:
        return ServerSource(name, name, "own", lambda user, **chosen: Client(target, **chosen))

    servers = [source(name, target) for name, target in targets.items()]
    async with (
        serving_console(servers=servers, has_sandbox=True, **options) as console,
        borrowed(chromium) as browser,
    ):
        tab = await open_tab(browser, console)
        await tab.page.locator("main").wait_for()
        yield AppPage(tab.page, console, tab.errors)
