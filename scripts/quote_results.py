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
    "rounds": {
        "antiphon / mcp, first round": ("a question, first round", "the official SDK (mcp)"),
        "antiphon / mcp, second round": ("a question, second round", "the official SDK (mcp)"),
    },
}


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
    """What was measured, as a table, with its date."""
    rows = ["| work | beside | ours is |", "|---|---|--:|"]
    dates = set()
    for name, wanted in RATIOS.items():
        result = _result(name)
        dates.add(result["facts"]["date"][:10])
        found = {ratio["name"]: ratio["rate"] for ratio in result["ratios"]}
        rows += [f"| {work} | {peer} | {found[key]:.2g} × as fast |" for key, (work, peer) in wanted.items()]
    promises = _result("promises")
    ratio = promises["ratio"]
    rows.append(f"| promises, made to redeemed, on disk | fastmcp-tasks, in memory | {ratio:.2g} × as fast |")
    imported = _result("import")["ratios"]["mcp"]["import"]
    rows.append(f"| import of the server | the official SDK (mcp) | {imported:.0%} of its time |")
    date = max(dates | {promises["facts"]["date"][:10]})
    return "\n".join([*rows, "", f"Taken on {date}; [how, and all the figures](benchmarks/README.md)."])


def _result(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return result


if __name__ == "__main__":
    sys.exit(main())
