"""Puts what `make bench` measured into the README, between its two markers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
RATIOS = {
    "answers": {
        "antiphon / mcp, 2026-07-28": ("plain answers", "the official SDK (mcp)"),
        "antiphon / fastmcp, 2026-07-28": ("plain answers", "FastMCP"),
        "antiphon / bare ASGI echo": ("plain answers", "a bare ASGI echo"),
    },
    "client": {
        "antiphon / mcp, 16 at once": ("calls of a client, 16 at once", "the official client (mcp)"),
    },
    "rounds": {
        "antiphon / mcp, second round": ("a question, second round", "the official SDK (mcp)"),
    },
    "streaming": {
        "antiphon, an answer / mcp, progress notifications": (
            "segments of a stream",
            "the official SDK's progress notifications",
        ),
        "antiphon, a task on SQLite / mcp, progress notifications": (
            "segments of a task, on disk",
            "the official SDK's progress notifications",
        ),
    },
}
"""Results that have a list of ratios: which of them are quoted, and in which words."""
SINGLE = {
    "promises": ("promises, made to redeemed, on disk", "fastmcp-tasks, in memory"),
    "scale": ("promises, made to redeemed, on PostgreSQL", "fastmcp-tasks, on Redis"),
}
"""Results that have one."""


def main() -> int:
    """Write the README, or with `--check` say whether it is up to date."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    wanted = f"{head}{START}\n{table()}\n{END}{tail}"
    if "--check" in sys.argv:
        print(
            "The README quotes the results." if wanted == text else "The README does not quote the results."
        )
        return int(wanted != text)
    readme.write_text(wanted)
    return 0


def table() -> str:
    """What was measured, as a table, with its date; what was not measured is left out."""
    rows = ["| work | beside | ours is |", "|---|---|--:|"]
    dates = set()
    for name, wanted in RATIOS.items():
        if (result := _result(name)) is not None:
            dates.add(result["facts"]["date"][:10])
            found = {ratio["name"]: ratio["rate"] for ratio in result["ratios"]}
            rows += [_row(*words, found[key]) for key, words in wanted.items()]
    for name, words in SINGLE.items():
        if (result := _result(name)) is not None:
            dates.add(result["facts"]["date"][:10])
            rows.append(_row(*words, result["ratio"]))
    if (result := _result("import")) is not None:
        share = result["ratios"]["mcp"]["import"]
        rows.append(f"| import of the server | the official SDK (mcp) | {share:.0%} of its time |")
    how = "`make bench` repeats it; [how, and all the figures](benchmarks/README.md)."
    when = f"on {max(dates)}" if len(dates) == 1 else f"from {min(dates)} to {max(dates)}"
    return "\n".join([*rows, "", f"Taken {when}, each line side by side in one run on one core. {how}"])


def _row(work: str, peer: str, ratio: float) -> str:
    return f"| {work} | {peer} | {f'{ratio:.0f}' if ratio >= 10 else f'{ratio:.2g}'} × as fast |"


def _result(name: str) -> dict[str, Any] | None:
    file = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


if __name__ == "__main__":
    sys.exit(main())
