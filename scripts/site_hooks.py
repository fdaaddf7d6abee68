"""For MkDocs: files outside of docs/ are named and not linked to, since the site has none of them."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\(((?:\.\./)+(?:examples|src|tests|benchmarks|scripts|[A-Z]+\.md)[^)]*)\)"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page, with the names of such files in place of links to them."""
    return _OUTSIDE.sub(_named, markdown)


def _named(match: re.Match[str]) -> str:
    path = match[2].lstrip("./")
    text = match[1]
    return f"{text} (`{path}`)" if path not in text and text.strip("`") not in path else f"`{path}`"
