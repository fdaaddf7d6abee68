"""Opens the page on which a person logs in. Only http and https addresses are opened, and without a shell."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from antiphon.authorization.urls import problem_of_url, shown_url
from antiphon.errors import AuthorizationFailed

__all__ = ["OpenBrowser", "has_terminal", "open_browser"]

OpenBrowser: TypeAlias = Callable[[str], Awaitable[str | None] | str | None]
"""Shows a person the page at a URL, as a plain or an async function.

Returns the address that the browser was sent back to, or `None` if the browser itself brings it back to the
client's port.
"""


async def open_browser(url: str) -> None:
    """Open a page in the browser of the person at the terminal; raises `AuthorizationFailed` without one."""
    if problem := problem_of_url(url, query=True):
        raise AuthorizationFailed(f"The page for the login {problem}: {shown_url(url)}. It was not opened.")
    print(f"Log in with your browser. If no page opens, visit:\n{url}", file=sys.stderr, flush=True)
    await asyncio.to_thread(webbrowser.open, url)


def has_terminal() -> bool:
    """Return whether a person can be asked: the program reads from a terminal, and shows errors there."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
