"""What really happened, as two files outside of the store tell it: what the tools did, and what callers saw.

Each process of the service has a file of notes: a line for the beginning and one for the end of each step,
synchronised to disk, so that a kill loses none. The callers have one file: a line for each response, or for
each request whose response was lost. The files know nothing of Antiphon. Times are of the system's monotonic
clock, which no fault makes jump.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.polling import moment

__all__ = ["History", "Note", "Notes", "Seen", "note", "note_file"]


class Note(NamedTuple):
    """One line of a tool."""

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
    build: str
    """Which library the process runs, and which version of the tools: `new a`."""


def note_file(folder: str) -> str:
    """Return the path of a new file for the notes of this process. A process number may come again."""
    return f"{folder}/{os.getpid()}-{secrets.token_hex(4)}"


def note(path: str, event: str, number: int, step: str, key: str, run: str, build: str) -> None:
    """Append a line and wait until it is on disk."""
    line = json.dumps([moment(), event, number, step, key, run, os.getpid(), build]) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Notes:
    """The notes of all processes, read again and again. A line that a kill left unfinished is no note."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._notes: list[Note] = []

    def read(self) -> Sequence[Note]:
        """Return all notes in the order of their times."""
        for path in self._folder.iterdir():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                self._notes += (Note(*json.loads(line)) for line in whole.split(b"\n"))
        self._notes.sort()
        return self._notes


class Seen(NamedTuple):
    """One line of a caller."""

    at: float
    event: str
    """`created`, `answered`, `cancelled`, `ended`, `segments`, `sent`, or `missing`."""
    task: str
    """The id of the task; for `sent`, the key of the event."""
    caller: str
    outcome: str
    """`acknowledged`, `refused`, or `lost` if nobody knows. For `ended`, the status.

    A cancellation is also `taken`: the task is cancelled, or had ended already.
    """
    value: Any
    """What was sent or received."""


class History:
    """The file of the callers."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self.seen: list[Seen] = []

    def add(self, event: str, task: str, caller: str, outcome: str, value: Any = None) -> None:
        """Append a line."""
        seen = Seen(moment(), event, task, caller, outcome, value)
        self.seen.append(seen)
        self._file.write(json.dumps(seen) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
