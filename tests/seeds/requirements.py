"""What the seeds require, with the line that says it: it holds, as a test shows, or differs for a reason.

`requirements.txt` has a line for each: the seed and its line, the requirement in short, the verdict and the
test. The reason of a difference is a sentence, or the name of a difference of the replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Requirement", "requirements"]

_FILE = Path(__file__).parent / "requirements.txt"


@dataclass(frozen=True)
class Requirement:
    """A sentence of a seed, in short."""

    seed: str
    line: int
    text: str
    differs: str
    """Why it does not hold as it stands; empty if it holds."""
    test: str
    """The test that shows it: its file and its name."""


def requirements() -> list[Requirement]:
    """All requirements, in the order of the seeds."""
    found = []
    for row in _FILE.read_text(encoding="utf-8").splitlines():
        where, text, verdict, test = (part.strip() for part in row.split(" | "))
        word, _, why = verdict.partition(": ")
        assert (word, bool(why)) in (("holds", False), ("differs", True)), row
        seed, line = where.split(":")
        found.append(Requirement(seed, int(line), text, why, test))
    return found
