"""Chromium, signed in at a console. Skips without a browser, or fails on CI."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tests.apps.browser import PACKAGES, WAIT_MS
from tests.console.support import RunningConsole

__all__ = ["AXE", "PHONE", "Tab", "accessibility_problems", "expect", "open_tab", "small_targets"]

AXE = PACKAGES / "axe-core" / "axe.min.js"
PHONE: dict[str, Any] = {
    "has_touch": True,
    "is_mobile": True,
    "viewport": {"width": 390, "height": 844},
}
"""The options of a tab on a phone."""
_SMALL_TARGETS = """
    [...document.querySelectorAll("button, select, summary, input, .button")]
      .map((node) => [node, node.getBoundingClientRect(), node.type === "checkbox" ? 24 : 44])
      .filter(([node, box, least]) => box.width && (box.height < least || box.width < least))
      .map(([node, box]) => `${node.tagName} ${node.textContent}: ${box.width}x${box.height}`)
"""


class Tab:
    """A page of the browser, with what must not happen in it."""

    def __init__(self, page: Any, own: str) -> None:
        self.page = page
        self.errors: list[str] = []
        """Errors of scripts, and violations of the policy."""
        self.outside: list[str] = []
        """Addresses of other hosts that the page asked for."""
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        page.on("request", lambda request: self._note(request.url, own))
        page.on("requestfailed", self._forget)

    def _note(self, url: str, own: str) -> None:
        if urlsplit(url).netloc != urlsplit(own).netloc and not url.startswith(("data:", "blob:")):
            self.outside.append(url)

    def _forget(self, request: Any) -> None:
        if request.failure == "csp" and request.url in self.outside:  # the policy stopped it
            self.outside.remove(request.url)


def expect(what: Any) -> Any:
    """Return the assertions of Playwright, which wait until they hold."""
    from playwright.async_api import expect

    expect.set_options(timeout=WAIT_MS)
    return expect(what)


async def open_tab(browser: Any, console: RunningConsole, path: str = "/", **options: Any) -> Tab:
    """Open a path of a console in a browser of its own, which is signed in."""
    context = await browser.new_context(**options)
    tab = Tab(await context.new_page(), console.url)
    await tab.page.goto(console.link())
    if path != "/":
        await tab.page.goto(console.url + path)
    return tab


async def accessibility_problems(page: Any) -> list[str]:
    """Return the violations that axe-core finds in a page."""
    # The policy refuses scripts from elsewhere, so axe-core runs as Playwright's own code.
    await page.evaluate(AXE.read_text(encoding="utf-8") + "\n;0")
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


async def small_targets(page: Any) -> list[str]:
    """Return the controls of a page that are too small for a finger."""
    return list(await page.evaluate(_SMALL_TARGETS))
