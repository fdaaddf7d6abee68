"""Writes docs/reference/seeds.md from the requirements and the differences that the tests keep.

`make reference` runs it. With `--check` it writes nothing, and fails if the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.seeds.blocks import SEEDS, blocks_of  # noqa: E402
from tests.seeds.client_differences import CLIENT_DIFFERENCES, RequestDifference  # noqa: E402
from tests.seeds.differences import CORE, DIFFERENCES, EVERY, Difference  # noqa: E402
from tests.seeds.requirements import Requirement, requirements  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "seeds.md"
TITLES = {
    "000": "Overview of response types",
    "001": "MRTR and Tasks Message Structure Proposal",
    "002": "SEP-2322: Multi Round-Trip Requests",
    "003": "MCP Response Patterns",
    "004": "SEP-1905: Task Result Streaming and Immediate Result Acceptance",
}
MARK = "<!-- Made from tests/seeds by `make reference`; changes below belong there. -->\n"
"""What is above it on the page is written by hand."""


def page() -> str:
    """Return the page, with new tables below the mark."""
    written, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    numbers = {seed: sum('"jsonrpc"' in block.text for block in blocks_of(seed)) for seed in SEEDS}
    counts = [f"{number} of {seed}" for seed, number in numbers.items() if number]
    rows = requirements()
    holding = sum(not row.differs for row in rows)
    parts = [
        f"The tests have {sum(numbers.values())} printed messages: {', '.join(counts)}.\n",
        f"Of {len(rows)} requirements, {holding} hold as they stand, and {len(rows) - holding} differ for "
        "a reason. Each has a test.\n",
        "## Where a server differs\n",
        _differences(DIFFERENCES),
        "## Where our client differs\n",
        _differences(CLIENT_DIFFERENCES),
        "## What the documents require\n",
    ]
    for seed in SEEDS:
        parts += [f"### {seed}: {TITLES[seed]}\n", _requirements(row for row in rows if row.seed == seed)]
    return f"{written}{MARK}\n" + "\n".join(parts)


def _differences(differences: Iterable[Difference | RequestDifference]) -> str:
    rows = []
    for each in differences:
        where = "<br>".join(f"{_listed(steps.split())} in {_dialects(names)}" for steps, names in each.where)
        rows.append((f"**{each.name}**", each.printed, each.ours, each.why, where))
    return _table(("name", "printed", "ours", "why", "where"), rows)


def _dialects(names: Sequence[str]) -> str:
    groups = {frozenset(EVERY): "every version", frozenset(CORE): "every version with `tasks/result`"}
    return groups.get(frozenset(names)) or ", ".join(names)


def _listed(words: Sequence[str]) -> str:
    """Return words in a list; messages of the same seed share its number."""
    said: list[str] = []
    seed = ""
    for word in words:
        before, _, line = word.partition(":")
        said.append(line if line and before == seed else word)
        seed = before
    return ", ".join(said)


def _requirements(rows: Iterable[Requirement]) -> str:
    said = []
    for row in rows:
        file, _, test = row.test.partition("::")
        words = test.removeprefix("test_").replace("_", " ")
        verdict = f"differs: {row.differs}" if row.differs else "holds"
        said.append((f"{row.seed}:{row.line}", row.text, verdict, f"`{file}`: {words}"))
    return _table(("line", "requirement", "", "the test that shows it"), said)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in lines)


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.relative_to(ROOT)} is out of date: run `make reference`.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
