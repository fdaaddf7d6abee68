"""Exit codes, and errors as the user sees them. Imports no other part of the library but `printable`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

from antiphon.printable import printable, printable_text

__all__ = [
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "SIGNALLED",
    "UNREACHABLE",
    "USAGE",
    "CommandError",
    "exit_with",
    "handle_errors",
    "has_colours",
    "print_error",
]

FAILED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130
SIGNALLED = 128
"""Added to the number of the signal that ended a command, as shells do."""

EXIT_CODES = (
    "Exit codes: 0 success; 1 the tool failed, or the server's Python code did; 2 wrong usage, or a question "
    "without an answer; 3 the server cannot be reached or does not respond correctly, or `run` cannot listen."
)


class CommandError(Exception):
    """An error that ends a command. `details` are printed above the message."""

    def __init__(self, message: str, code: int = USAGE, *, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details


def print_error(message: str) -> None:
    """Print an error to standard error, on one line."""
    red = has_colours(sys.stderr)
    print("\x1b[31mError:\x1b[0m" if red else "Error:", printable(message), file=sys.stderr)


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which the user wants colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def exit_with(error: CommandError) -> NoReturn:
    """Print an error and exit with its code."""
    if error.details:
        print(printable_text(error.details.rstrip()), file=sys.stderr)
    print_error(error.message)
    raise SystemExit(error.code)


@contextmanager
def handle_errors() -> Iterator[None]:
    """Turn a `CommandError` or Ctrl-C into a message and an exit code."""
    try:
        yield
    except CommandError as error:
        exit_with(error)
    except RecursionError:  # JSON of the server, or of a file, is printed or compared
        exit_with(CommandError("The JSON is nested too deeply.", UNREACHABLE))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
