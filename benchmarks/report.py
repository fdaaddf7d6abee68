"""Results as people and programs read them: `results/NAME.md` and `results/NAME.json`.

It owns tables and the facts of the machine, and knows nothing of what was measured.
"""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "Report", "Table", "facts", "listed"]

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of words; the first column is aligned left, the others right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as Markdown, padded so that it also reads as text."""
        lines = [list(self.columns), *map(list, self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]

        def row(cells: list[str]) -> str:
            first, *rest = zip(cells, widths, strict=True)
            return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in rest)]) + " |"

        rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:]), ""])
        return "\n".join([row(lines[0]), rule, *map(row, lines[1:])])


def facts() -> dict[str, Any]:
    """When and on what a result was taken."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def listed(packages: dict[str, str]) -> str:
    """Packages with their versions, in words."""
    return ", ".join(f"{package} {version}" for package, version in packages.items())


@dataclass(frozen=True, slots=True)
class Report:
    """One result: what was asked, the tables that answer it, and the numbers they came from."""

    name: str
    title: str
    lead: str
    facts: dict[str, Any]
    tables: Sequence[Table]
    notes: Sequence[str]
    data: dict[str, Any]

    def markdown(self) -> str:
        """The whole result as a Markdown page."""
        about = self.facts
        taken = (
            f"Taken {about['date']}, Python {about['python']}, {about['machine']}, {about['cores']} cores, "
            f"load {about['load_before']} before."
        )
        parts = [
            f"# {self.title}",
            self.lead,
            taken,
            *(table.markdown() for table in self.tables if table.rows),
        ]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"

    def publish(self, *, keep: bool = True) -> None:
        """Print the result, and write it unless it is not to be kept."""
        text = self.markdown()
        if keep:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{self.name}.md").write_text(text)
            whole = json.dumps({"facts": self.facts, **self.data}, indent=2)
            (RESULTS / f"{self.name}.json").write_text(whole + "\n")
        print(text, flush=True)
