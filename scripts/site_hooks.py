"""Adapts the pages of docs/ to the site: MkDocs calls the functions whose names begin with `on_`.

The pages stay plain Markdown that a repository browser can show. This module draws their Mermaid diagrams
while the site is built, so that a reader's browser needs no script for them. It also puts the picture of the
landing page into the page itself, so that the picture follows the theme's colours.
"""

from __future__ import annotations

import re
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import mermaidx

_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\(((?:\.\./)+(?:examples|src|tests|benchmarks|scripts|[A-Z]+\.md)[^)]*)\)"
)
_INLINED = re.compile(r'<img alt="([^"]*)" src="(assets/[\w-]+\.svg)" ?/?>')
_NUMBERS = count(1)

# Mermaid computes further colours from these, so they have to be real ones. Each stands for a variable
# of docs/assets/site.css, which has two values: one for the light theme, one for the dark.
_COLOURS = {
    "#e10001": "--diagram-box",
    "#e10002": "--diagram-text",
    "#e10003": "--diagram-border",
    "#e10004": "--diagram-line",
    "#e10005": "--diagram-note",
    "#e10007": "--diagram-page",
}
_THEME = {
    "primaryColor": "#e10001",
    "mainBkg": "#e10001",
    "actorBkg": "#e10001",
    "primaryTextColor": "#e10002",
    "textColor": "#e10002",
    "actorTextColor": "#e10002",
    "signalTextColor": "#e10002",
    "noteTextColor": "#e10002",
    "labelTextColor": "#e10002",
    "transitionLabelColor": "#e10002",
    "primaryBorderColor": "#e10003",
    "nodeBorder": "#e10003",
    "actorBorder": "#e10003",
    "noteBorderColor": "#e10003",
    "lineColor": "#e10004",
    "actorLineColor": "#e10004",
    "signalColor": "#e10004",
    "transitionColor": "#e10004",
    "secondaryColor": "#e10005",
    "tertiaryColor": "#e10005",
    "noteBkgColor": "#e10005",
    "clusterBkg": "#e10005",
    "background": "#e10007",
    "edgeLabelBackground": "#e10007",
    "labelBackgroundColor": "#e10007",
}


def on_config(config: Any, **_: Any) -> Any:
    """Register the function that draws ```mermaid blocks."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "mermaid", "class": "diagram", "format": draw}]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files outside of docs/ instead of linking to them, and show ```terminal blocks as commands."""
    return _OUTSIDE.sub(_named, markdown).replace("\n```terminal\n", "\n```console\n")


def on_page_content(html: str, config: Any, **_: Any) -> str:
    """Replace the images that are drawn for the theme's colours by the drawings themselves."""
    return _INLINED.sub(lambda match: _inlined(Path(config.docs_dir), match), html)


def draw(source: str, _language: str, css_class: str, *_: Any, **__: Any) -> str:
    """Return a Mermaid diagram as an SVG element whose colours are variables of the stylesheet."""
    drawing = mermaidx.render(
        source, theme="base", config={"themeVariables": _THEME, "fontFamily": "inherit"}
    ).svg()
    for colour, variable in _COLOURS.items():
        drawing = drawing.replace(colour, f"var({variable})")
    # The elements refer to each other by id, and a page may have several diagrams.
    drawing = drawing.replace("my-svg", f"diagram-{next(_NUMBERS)}")
    kind = escape(source.split(maxsplit=1)[0])
    return f'<figure class="{css_class} {css_class}-{kind}" role="group">{drawing}</figure>'


def _named(match: re.Match[str]) -> str:
    path = match[2].lstrip("./")
    text = match[1]
    return f"{text} (`{path}`)" if path not in text and text.strip("`") not in path else f"`{path}`"


def _inlined(docs: Path, match: re.Match[str]) -> str:
    drawing = (docs / match[2]).read_text(encoding="utf-8")
    start = drawing.index("<svg")
    return f'<svg role="img" aria-label="{match[1]}"{drawing[start + 4 :]}'
