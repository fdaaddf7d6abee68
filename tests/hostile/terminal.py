"""Runs commands on a terminal and in pipes, and checks what they print."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment
from tests.support.process import ROOT
from tests.test_printable import FORBIDDEN

# What the command line itself sends to a terminal: styles, and the moves of its progress bar and status line.
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[1A|\r?\x1b\[2K|\r\n|\r(?=\x1b)")


def foreign_text(shown: str) -> str:
    """Return what a terminal got, without the styles and moves of the command line itself."""
    return OWN.sub("\n", shown)


def assert_printable(text: str) -> None:
    """Fail if a text has characters that a terminal must not get."""
    found = {hex(ord(character)) for character in set(text) & (set(FORBIDDEN) - {"\n", "\t"})}
    assert not found, repr(text)


def in_pipes(arguments: Sequence[str]) -> str:
    """Run a command without a terminal, and return all that it prints."""
    done = antiphon(*arguments)
    return done.stdout + done.stderr


def in_pseudo_terminal(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Run a command whose input and outputs are a terminal, and answer its prompts with a question mark."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=plain_environment({"TERM": "xterm", "COLUMNS": "200", **(env or {})}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown, answered = b"", 0
    guard = threading.Timer(PATIENCE, process.kill)
    guard.start()
    try:
        while True:
            is_asked = len(shown) > answered and shown.rstrip(b"\r\n").endswith(b": ")
            if not select.select([ours], [], [], 0 if is_asked else None)[0]:
                os.write(ours, b"!decline\n")
                answered = len(shown)
                continue
            try:
                data = os.read(ours, 65536)
            except OSError:  # the command has ended
                break
            shown += data
        assert process.wait() != -signal.SIGKILL, f"not within {PATIENCE:g} seconds: {shown!r}"
    finally:
        guard.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    return shown.decode()
