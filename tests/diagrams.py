"""Prints the diagrams and tables of the documentation from those in the code: `python -m tests.diagrams`.

With `--write`, the tables are written to their page.
"""

from __future__ import annotations

import sys

from antiphon.model.task import TRANSITIONS, Task
from antiphon.runtime.tables import TABLES
from tests.support.process import ROOT

__all__ = ["TABLES_PAGE", "tables", "task_states"]

TABLES_PAGE = ROOT / "docs" / "discussions" / "threat-model.md"
_TABLES_HEADER = "| what callers can fill | how many | bytes | share of one caller | beyond |"


def task_states() -> str:
    """The life of a task, as Mermaid draws it."""
    # Mermaid draws one arrow from a state to itself, so entries that lead the same way share an arrow.
    entries: dict[tuple[str, str], list[str]] = {}
    for (state, entry), after in TRANSITIONS.items():
        entries.setdefault((state, after), []).append(entry)
    lines = ["stateDiagram-v2", "    [*] --> working: created"]
    lines += [f"    {state} --> {after}: {', '.join(named)}" for (state, after), named in entries.items()]
    states = dict.fromkeys(TRANSITIONS.values())
    ends = [state for state in states if Task("", "", 0, 0, state=state).has_ended]
    return "\n".join([*lines, *(f"    {state} --> [*]" for state in ends)])


def tables() -> str:
    """The tables that callers can fill, as Markdown shows them."""
    rows = [(each.name, each.number, each.size, each.share, each.beyond) for each in TABLES]
    return "\n".join([_TABLES_HEADER, "|---|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def _write_tables() -> None:
    text = TABLES_PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_TABLES_HEADER)
    _, _, after = rest.partition("\n\n")
    TABLES_PAGE.write_text(f"{before}{tables()}\n\n{after}", encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        _write_tables()
    else:
        print(task_states(), tables(), sep="\n\n")
