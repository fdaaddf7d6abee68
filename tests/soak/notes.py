"""What really happened: one line for the beginning and one for the end of each step, synchronised to disk.

The file knows nothing of Antiphon. Times are of the system's monotonic clock, which no test makes jump.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Note", "note", "read_notes"]


class Note(NamedTuple):
    """One line of the file."""

    at: float
    event: str
    """`begin` or `end`."""
    number: int
    """The number of the task, which the driver chose."""
    step: str
    key: str
    """The idempotency key of the step."""
    run: str
    """Unique to this attempt at the step. The end of the step returns it."""
    process: int


def note(path: str, event: str, number: int, step: str, key: str, run: str) -> None:
    """Append a line and wait until it is on disk."""
    line = json.dumps([time.monotonic(), event, number, step, key, run, os.getpid()]) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_notes(path: Path) -> list[Note]:
    """Return all lines in the order of their times, without a line that a killed process left unfinished."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(Note(*json.loads(line)))
        except (ValueError, TypeError):
            continue
    return sorted(found)
