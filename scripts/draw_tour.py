"""Draws docs/tour.svg from a real run of examples/demo.py: what a terminal of 96 columns shows of it.

`make tour` does it. What is different in each run (ports, ids) is shortened, and where servers say that they
serve is left out, so that a reader sees the tour and a new run differs where the tour does.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
from pathlib import Path
from types import ModuleType

from rich.console import Console, ConsoleRenderable, RichCast
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
WIDTH = 96
_IDS = re.compile(r"\b([a-z_]+)_[0-9a-f]{11}-[0-9a-f-]{36}\b")


class Camera(Console):
    """The console of the tour, which keeps what a picture should show."""

    def print(self, *objects: object, **options: object) -> None:  # type: ignore[override]
        """Print it, shortened."""
        shown = [_short(each) for each in objects]
        if not any(isinstance(each, str | Text) and " is served at " in str(each) for each in shown):
            super().print(*shown, **options)  # type: ignore[arg-type]


def main() -> int:
    """Take the tour and draw it; fails if the tour does."""
    sys.path.insert(0, str(ROOT / "examples"))
    import demo

    text = taken(demo)
    (ROOT / "docs" / "tour.svg").write_text(text, encoding="utf-8")
    return 0


def taken(demo: ModuleType) -> str:
    """The picture of one run."""
    camera = Camera(record=True, width=WIDTH, highlight=False, file=io.StringIO(), force_terminal=True)
    demo.console = camera
    if asyncio.run(demo.main()):
        raise SystemExit("The tour did not go as expected: make demo says where.")
    picture = camera.export_svg(title="make demo", theme=MONOKAI, unique_id="tour")
    # A README needs no web fonts, and none are to be fetched by whoever looks at it.
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)


def _short(shown: object) -> object:
    if isinstance(shown, str):
        return _IDS.sub(r"\1_…", shown)
    if isinstance(shown, Text) and any(len(line) > WIDTH for line in shown.plain.splitlines()):
        lines = (line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in shown.plain.splitlines())
        return Text("\n".join(lines))
    assert isinstance(shown, ConsoleRenderable | RichCast | Text)
    return shown


if __name__ == "__main__":
    sys.exit(main())
