"""Opens a browser at an address that contains a token.

Every user of a machine can read the arguments of its processes. So the browser gets the path of a private
file, which leads to the address, and which is removed when the token was used.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path

from antiphon.store.private_files import open_private_file

__all__ = ["BrowserPage"]

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={address}">
<title>Antiphon</title>
<p><a href="{address}">Open the console</a></p>
"""


class BrowserPage:
    """A page in a private folder, which leads a browser to the console."""

    def __init__(self) -> None:
        self._folder: str | None = None

    def open(self, address: Callable[[Callable[[], None]], str]) -> None:
        """Open a browser at an address. `address` returns it, and takes a function to call after its use."""
        self._folder = tempfile.mkdtemp(prefix="antiphon-console-")
        page = Path(self._folder) / "open.html"
        with open_private_file(page) as file:
            file.write(_PAGE.format(address=escape(address(self.remove))).encode())
        # A browser that runs in the terminal would block the event loop.
        threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()

    def remove(self) -> None:
        """Remove the page, after it was used or when the console ends."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
