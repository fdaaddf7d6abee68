"""Runs the `antiphon` command in a pseudo-terminal, types to it and reads its screen."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import COMMAND, PATIENCE, plain_environment
from tests.support.process import ROOT

CTRL_C, CTRL_D = "\x03", "\x04"
# Makes the pseudo-terminal the controlling terminal, so that Ctrl-C sends a signal, and runs the command.
_RUN_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class TerminalSession:
    """A command in a pseudo-terminal. Its standard output goes to a pipe."""

    def __init__(self, process: subprocess.Popen[str], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._seen = ""
        self._read = 0

    @property
    def screen(self) -> str:
        """The output of the terminal so far, without styles."""
        return self._seen

    def expect(self, text: str) -> str:
        """Wait for a text on the screen. Return the output since the last expected text."""
        while (found := self._seen.find(text, self._read)) < 0:
            assert self._look(), f"not on the screen: {text!r}. It has:\n{self._seen}"
        start, self._read = self._read, found + len(text)
        return self._seen[start : self._read]

    def type_line(self, line: str) -> None:
        """Type a line and press Enter."""
        self.press(line + "\n")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def wait(self) -> tuple[int, str]:
        """Wait until the command exits. Return its exit code and standard output."""
        while self._look():
            pass
        printed, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, printed

    def _look(self) -> bool:
        """Wait for the next output, and read it. Return whether there was any."""
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE)
        if not ready:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the other side is closed
            return False
        self._seen = _STYLES.sub("", self._seen + data.decode(errors="replace").replace("\r\n", "\n"))
        return bool(data)


@contextmanager
def in_terminal(
    *arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> Iterator[TerminalSession]:
    """Run a command in a pseudo-terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN_WITH_TERMINAL, *COMMAND, *map(str, arguments)],
            cwd=cwd,
            env=plain_environment({"TERM": "xterm", **(env or {})}),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            encoding="utf-8",
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        yield TerminalSession(process, ours)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
        os.close(ours)
