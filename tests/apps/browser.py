"""A host in Chromium, made with the official package, that shows an App of a server.

Every request of the browser is answered here, from files, or recorded and refused. The App has an origin of
its own, and the policy that a host uses if an App names no domains.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon import Client
from tests.support.polling import until
from tests.support.process import ROOT

HERE = Path(__file__).parent
PACKAGES = ROOT / ".node" / "node_modules"
WAIT_MS = 60_000

DEFAULT_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'none'; "
    "object-src 'none'; base-uri 'self'; require-trusted-types-for 'script'"
)
"""The restrictive default of the specification, and no strings as markup beside it."""
ALL_CAPABILITIES: Mapping[str, Any] = {
    "openLinks": {},
    "serverTools": {},
    "serverResources": {},
    "logging": {},
}
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
}


def _chromium() -> str:
    """Return the path of Chromium; without it, skips the modules that import this one, or fails on CI."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    packages = find_spec("playwright") and (PACKAGES / "@modelcontextprotocol" / "ext-apps").exists()
    if found is not None and packages:
        return found
    reason = (
        "This test needs Chromium (on Debian: apt-get install chromium), and the packages that `make test` "
        "installs."
    )
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


CHROMIUM = _chromium()


async def until_true(page: Any, condition: str) -> None:
    """Wait until an expression is true in a page or a frame.

    Playwright's own waiting evaluates text in the page again and again, which a strict policy forbids.
    """
    await until(lambda: page.evaluate(condition))


class Host:
    """The page of a host with one App."""

    def __init__(self, page: Any, client: Client, outside: list[str], messages: list[str]) -> None:
        self._page = page
        self._client = client
        self._html = ""
        self.outside = outside
        """The addresses that the browser asked for, beside the host and the App."""
        self.messages = messages
        """The errors on the console, such as violations of the policy."""
        self.app = page.frame_locator("#app")

    async def show(
        self,
        html: str,
        *,
        result: Any = None,
        capabilities: Mapping[str, Any] = ALL_CAPABILITIES,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Show the HTML of an App, and send the result of a tool to it."""
        self._html = html
        options = {"capabilities": capabilities, "context": context or {}, "input": {}, "result": result}
        await self._page.evaluate("options => window.show(options)", options)

    async def seen(self) -> dict[str, Any]:
        """Return what the App asked of the host so far."""
        found: dict[str, Any] = await self._page.evaluate("window.seen")
        return found

    async def evaluate(self, script: str, argument: Any = None) -> Any:
        """Run a script in the page of the host."""
        return await self._page.evaluate(script, argument)

    async def wait_for(self, condition: str) -> None:
        """Wait until a condition holds in the page of the host."""
        await until_true(self._page, condition)

    async def evaluate_in_app(self, script: str) -> Any:
        """Run a script in the App."""
        return await self._page.frames[1].evaluate(script)

    async def wait_for_app(self, condition: str) -> None:
        """Wait until a condition holds in the App."""
        await until_true(self._page.frames[1], condition)

    async def read(self, uri: str) -> Any:
        """Read a resource of the server for the App."""
        read = await self._client.read(uri)
        return {"contents": msgspec.to_builtins(read.contents)}

    async def answer(self, route: Any) -> None:
        """Answer a request of the browser."""
        url = str(route.request.url)
        if url == "https://app.test/":
            headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": DEFAULT_POLICY}
            await route.fulfill(body=self._html, headers=headers)
        elif url == "https://host.test/":
            await route.fulfill(path=HERE / "host.html")
        elif url.startswith("https://host.test/packages/"):
            file = PACKAGES / url.removeprefix("https://host.test/packages/")
            await route.fulfill(path=file, content_type=_TYPES[file.suffix])
        else:
            if not url.endswith("/favicon.ico"):
                self.outside.append(url)
            await route.abort()


@asynccontextmanager
async def launched(*arguments: str) -> AsyncIterator[Any]:
    """Start Chromium."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", *arguments]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def borrowed(chromium: Any) -> AsyncIterator[Any]:
    """Give a Chromium that runs, and close what is opened in it meanwhile."""
    before = set(chromium.contexts)
    try:
        yield chromium
    finally:
        for context in set(chromium.contexts) - before:
            await context.close()


@asynccontextmanager
async def host_for(chromium: Any, client: Client) -> AsyncIterator[Host]:
    """Open a host whose Apps read resources of a client's server."""
    async with borrowed(chromium) as browser:
        page = await browser.new_page()
        page.set_default_timeout(WAIT_MS)
        messages: list[str] = []
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("console", lambda message: messages.append(message.text) if message.type == "error" else None)
        host = Host(page, client, [], messages)
        await page.route("**/*", host.answer)
        await page.expose_function("readResource", host.read)
        await page.goto("https://host.test/")
        await until_true(page, "window.ready")
        yield host
