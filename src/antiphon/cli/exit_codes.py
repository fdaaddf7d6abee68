"""How a command ends: the exit codes, and an error as the person at the terminal sees it."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

__all__ = ["EXIT_CODES", "FAILED", "INTERRUPTED", "UNREACHABLE", "USAGE", "CommandError", "leave", "report"]

FAILED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130

EXIT_CODES = (
    "Exit codes: 0 it went well, 1 the tool or the server's own code failed, 2 the command line is wrong "
    "or lacks an answer, 3 the server cannot be reached (or, for `run`, cannot listen) or does not answer "
    "as it should."
)


class CommandError(Exception):
    """A command cannot go on. `details` are printed first, for those who need more than a line."""

    def __init__(self, message: str, code: int = USAGE, *, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details


def report(message: str) -> None:
    """Print an error."""
    red = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print("\x1b[31mError:\x1b[0m" if red else "Error:", message, file=sys.stderr)


def leave(error: CommandError) -> NoReturn:
    """Print an error and end the process with its code."""
    if error.details:
        print(error.details.rstrip(), file=sys.stderr)
    report(error.message)
    raise SystemExit(error.code)
