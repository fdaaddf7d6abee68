"""The files of the page: HTML, scripts and styles, with their media types and validators.

The scripts that show Markdown and data are those of the App that shows artifacts. They are joined to one
module here, so that there is one copy of them. Browsers get scripts without comments and indentation, which
stay in the package.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from antiphon.transport.server.http.router import HttpResponse

__all__ = ["Assets"]

FOLDER = Path(__file__).parent / "static"
_VIEWER = Path(__file__).parent.parent / "runtime" / "artifacts" / "viewer_assets"
_VIEWER_SCRIPTS = ("data.js", "markdown.js")
_VIEWER_IMPORTS = b'import { h } from "./dom.js";\n'
_VIEWER_EXPORTS = b"export { dataView, markdownView, separatedRows, sortableTable };\n"
_VIEWS = "lib/views.js"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_BASE = b'<base href="./">'
_COMMENTS = re.compile(rb"^[ \t]*//[^\n]*\n|/\*\*.*?\*/[ \t]*", re.MULTILINE | re.DOTALL)
"""Comments of scripts: lines that are comments, and blocks, which have types."""
_INDENTATION = re.compile(rb"^(?:[ \t]+|\n)", re.MULTILINE)
"""The beginnings of indented lines, and empty lines. No text in a script may span lines."""


class Assets:
    """The files of the page, read once. Only files that are in the package are served."""

    def __init__(self) -> None:
        self.files = {
            path.relative_to(FOLDER).as_posix(): _served(path)
            for path in sorted(FOLDER.rglob("*"))
            if path.suffix in _TYPES
        }
        """The content of each file, by its name."""
        scripts = (_served(_VIEWER / name) for name in _VIEWER_SCRIPTS)
        self.files[_VIEWS] = b"".join([_VIEWER_IMPORTS, *scripts, _VIEWER_EXPORTS])
        self._tags = {
            name: f'"{hashlib.sha256(content).hexdigest()[:32]}"' for name, content in self.files.items()
        }

    def find(self, name: str, if_none_match: str | None) -> HttpResponse | None:
        """Return the response for a file; `None` if there is none of this name."""
        content = self.files.get(name)
        if content is None or name.endswith(".html"):
            return None
        headers = {"etag": self._tags[name], "cache-control": "no-cache"}
        if if_none_match == self._tags[name]:
            return HttpResponse(b"", status=304, headers=headers)
        return HttpResponse(content, media_type=_TYPES[Path(name).suffix], headers=headers)

    def page(self, name: str, depth: int, *, status: int = 200) -> HttpResponse:
        """Return a page whose relative addresses begin `depth` folders above its own address.

        So the page works under every prefix, also one that only a reverse proxy knows.
        """
        base = b'<base href="%s">' % (b"../" * depth or b"./")
        content = self.files[name].replace(_BASE, base, 1)
        return HttpResponse(
            content, status=status, media_type=_TYPES[".html"], headers={"cache-control": "no-store"}
        )


def _served(path: Path) -> bytes:
    """Return the content of a file, as browsers get it."""
    content = path.read_bytes()
    return _INDENTATION.sub(b"", _COMMENTS.sub(b"", content)) if path.suffix == ".js" else content
