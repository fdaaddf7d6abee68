"""Ctrl-C on a server: the first one says what the server waits for, the second one ends the process.

Owns the count of interrupts in one process. The transports start the drain themselves.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

__all__ = ["EXIT_CODE", "Interrupts", "Running", "exit_at_once"]

EXIT_CODE = 130
"""The exit code of a process that Ctrl-C has ended, as in a shell."""


class Running(NamedTuple):
    """How many calls and tasks are running in a process."""

    calls: int = 0
    tasks: int = 0


class Interrupts:
    """Handles SIGINT in one process.

    `count_running` counts what the server waits for, and `drain_timeout` bounds the wait. `subject` names the
    process in the message, if there are several.
    """

    def __init__(
        self, count_running: Callable[[], Running], drain_timeout: float, *, subject: str | None = None
    ) -> None:
        self._count_running = count_running
        self._drain_timeout = drain_timeout
        self._subject = subject
        self._received = 0

    def handle(self) -> None:
        """Say what the server waits for. From the second call on, end the process at once."""
        self._received += 1
        if self._received > 1:
            exit_at_once()
        waiting_for = _describe(self._count_running())
        if waiting_for:
            waits = "Waiting" if self._subject is None else f"{self._subject} waits"
            seconds = f"{self._drain_timeout:g} s at most"
            _write(f"{waits} for {waiting_for}, {seconds}. Press Ctrl-C again to stop at once.\n")


def exit_at_once(code: int = EXIT_CODE) -> NoReturn:
    """End the process without waiting for calls and tasks. Another worker continues the tasks later."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the signal may have interrupted a write
            stream.flush()
    os._exit(code)


def _describe(running: Running) -> str:
    parts = [(running.calls, "call"), (running.tasks, "task")]
    return " and ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in parts if count)


def _write(text: str) -> None:
    # A signal handler may run in the middle of a write to `sys.stderr`, which is not reentrant.
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
