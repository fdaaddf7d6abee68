"""The App that shows an artifact: one HTML document that contains its scripts and styles.

Owns how the document is put together. The App gets its data from the host, by the address of the artifact or
from a tool's result, so the document contains no data of an artifact.
"""

from __future__ import annotations

import functools
from pathlib import Path

__all__ = ["VIEWER_ID", "viewer_page"]

VIEWER_ID = "artifact"
"""Stands in the URI of the App that shows the artifact of a result, in place of the id of an artifact."""

_FOLDER = Path(__file__).parent / "viewer_assets"
_SCRIPTS = ("bridge.js", "nodes.js", "data.js", "markdown.js", "main.js")


def viewer_page(uri: str = "", title: str | None = None) -> str:
    """Return the document that shows the artifact at a URI or, without one, the artifact of a result."""
    from html import escape  # loads a large table, which other servers do not need

    filled = f'<body data-uri="{escape(uri)}" data-title="{escape(title or "")}">'
    return _document().replace('<body data-uri="" data-title="">', filled, 1)


@functools.cache
def _document() -> str:
    scripts = "\n".join(_read(name) for name in _SCRIPTS)
    page = _read("page.html").replace("/* style.css */\n", _read("style.css"))
    return page.replace("/* scripts */\n", scripts)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
