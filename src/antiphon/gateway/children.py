"""The processes of upstream servers, none of which outlives this process.

A process that is killed cannot stop its children. Their input ends then, but a server may ignore that, and
so may the processes that it has started. `PR_SET_PDEATHSIG` would reach the child only, on Linux only, and
would have to run between `fork` and `exec`. So one small process, the watchdog, holds a pipe of this process,
and ends the process groups of all children when the pipe closes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess  # nosec B404 # starts the watchdog, a program of our own
import sys
from collections.abc import Callable
from typing import Any

from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.stdio import StdioChannel

__all__ = ["SupervisedChannel", "Watchdog"]

_WATCHDOG = """\
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for number in (signal.SIGTERM, signal.SIGKILL):
    for group in groups:
        try:
            os.killpg(group, number)
        except OSError:
            pass
    if number == signal.SIGTERM and groups:
        time.sleep(2)
"""
"""The program of the watchdog. It gets the number of each process group that begins (+) and ends (-)."""
_EXIT_SECONDS = 5.0
"""How long the watchdog may take to exit."""


class Watchdog:
    """Ends the processes of upstream servers when this process is gone. Does nothing on Windows."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def add(self, group: int) -> None:
        """Watch a process group."""
        if sys.platform == "win32":
            return
        self._groups.add(group)
        if self._process is None:
            self._start()
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Forget a process group that has ended; the watchdog ends with the last one."""
        if group not in self._groups:
            return
        self._groups.discard(group)
        self._tell(f"-{group}\n")
        if not self._groups:
            process, self._process = self._process, None
            if process is not None and process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_EXIT_SECONDS)  # it has nothing left to do

    def _start(self) -> None:
        # A session of its own, so that signals for the group of this process do not reach it.
        self._process = subprocess.Popen(  # nosec B603 # fixed words, no shell
            [sys.executable, "-I", "-S", "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={},
        )

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # somebody has killed the watchdog
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


class SupervisedChannel(StdioChannel):
    """A channel to a child process that the watchdog watches; it reports the loss of the process.

    Callers of the gateway get its errors, so they contain no output of the process and nothing of the
    configuration.
    """

    quotes_output = False
    _watchdog: Watchdog
    _on_lost: Callable[[], None]
    _group: int | None = None

    def watch(self, watchdog: Watchdog, on_lost: Callable[[], None]) -> None:
        """Set the watchdog, and the function to call if the process exits or closes its output."""
        self._watchdog = watchdog
        self._on_lost = on_lost

    async def open(self, receive: Receiver) -> None:
        """Start the process; raises `Unreachable`."""
        await super().open(receive)
        assert self._process is not None
        self._group = self._process.transport.get_pid()
        self._watchdog.add(self._group)

    async def close(self) -> None:
        """Stop the process."""
        try:
            await super().close()
        finally:
            if self._group is not None:
                self._watchdog.remove(self._group)

    async def _watch(self, *args: Any) -> None:
        """Fail waiting requests when the process is lost, and report the loss after that."""
        await super()._watch(*args)
        self._on_lost()

    def _start_problem(self, error: OSError | ValueError) -> str:
        """Return why the process cannot be started, and what to do."""
        if isinstance(error, FileNotFoundError) and self._cwd is not None and not os.path.isdir(self._cwd):
            return "its folder (cwd) does not exist."
        if isinstance(error, FileNotFoundError):
            return "its program was not found. Check the name in its command, or write the full path."
        if isinstance(error, PermissionError):
            return "its program is not executable. Start a script with its interpreter, such as python."
        return f"{error.strerror if isinstance(error, OSError) else error}."
