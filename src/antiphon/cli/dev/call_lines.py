"""Prints one line for each call that `antiphon dev` serves: time, tool, arguments, outcome and duration.

The lines come from the log of calls. They go to standard output, and the log itself goes to standard error.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from antiphon.cli.exit_codes import has_colours
from antiphon.printable import printable
from antiphon.runtime.observability.telemetry import call_log
from antiphon.runtime.tasks.summaries import summarize

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["CallLines", "show_calls"]

_MAX_NAME_CHARACTERS = 60
_GREEN, _RED, _YELLOW, _DIM, _RESET = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_COLOURS = {"ok": _GREEN, "failed": _RED, "error": _RED}


def show_calls(server: Server) -> None:
    """Print a line for each call of a server from now on, in place of the lines in the log."""
    server.engine.telemetry.log_arguments = True
    call_log.addHandler(CallLines(sys.stdout))
    call_log.setLevel(logging.INFO)
    call_log.propagate = False


class CallLines(logging.Handler):
    """Writes calls to a stream, with colours if it is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._is_coloured = has_colours(stream)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a call."""
        try:
            self._stream.write(f"{self._line(getattr(record, 'call', {}), record.created)}\n")
            self._stream.flush()
        except Exception:  # a line that cannot be written must not change how the call ends
            self.handleError(record)

    def _line(self, call: Mapping[str, Any], created: float) -> str:
        outcome = _outcome(call)
        moment = time.strftime("%H:%M:%S", time.localtime(created))
        tool = printable(str(call.get("tool", "?")), _MAX_NAME_CHARACTERS)
        arguments = summarize(call.get("arguments")) or ""
        seconds = call.get("seconds")
        took = "" if seconds is None else f" {seconds * 1000:.1f} ms"
        details = _details(call)
        colour = _COLOURS.get(outcome, _YELLOW)
        return (
            f"{self._styled(moment, _DIM)} {tool}({arguments}) {self._styled(outcome, colour)}{details}"
            f"{self._styled(took, _DIM)}"
        )

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self._is_coloured and text else text


def _outcome(call: Mapping[str, Any]) -> str:
    """Return how a call ended, in one word."""
    outcome = str(call.get("outcome"))
    if outcome == "complete":
        return "ok"
    if outcome == "open":
        return "asks" if call.get("response") == "input_required" else "continues"
    return outcome


def _details(call: Mapping[str, Any]) -> str:
    """Return the kind of an error, and the id of the task that the call is."""
    error, task = call.get("error"), call.get("task")
    shown = "" if error is None else f" {printable(str(error), _MAX_NAME_CHARACTERS)}"
    return shown if task is None else f"{shown} as task {printable(str(task), _MAX_NAME_CHARACTERS)}"
