"""What the tests of stores share: a clock that moves when told to, and tasks to put into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon.store.contract import Record

START = 1_800_000_000_000
"""When the tests' clock begins, in milliseconds."""


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now / 1000

    def forward(self, seconds: float) -> None:
        self.now += int(seconds * 1000)

    def back(self, seconds: float) -> None:
        self.forward(-seconds)


def task(id: str = "a", **fields: Any) -> Record:
    """A record that is ready, unless told otherwise."""
    values: dict[str, Any] = {
        "id": id,
        "principal": "ann",
        "tool": "echo",
        "phase": "ready",
        "version": 0,
        "created": START,
        "updated": START,
        "expires": None,
        "head": {"status": "working"},
    }
    return Record(**(values | fields))


def content(path: Path) -> bytes:
    """What is in a file."""
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    """Make a file."""
    path.write_bytes(content)
