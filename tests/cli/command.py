"""Runs the `antiphon` command as a user does: in a real process, with real sockets."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.fork_server import PythonProcess, run_process, start_process
from tests.support.polling import wait_until
from tests.support.process import ROOT, environment

PATIENCE = 60.0
COMMAND = (sys.executable, "-m", "antiphon")


def antiphon(
    *arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output and exit code."""
    words = [*COMMAND, *map(str, arguments)]
    return run_process(words, cwd=cwd, env=plain_environment(env), timeout=PATIENCE)


class Running:
    """A running `antiphon run` process."""

    def __init__(self, process: PythonProcess, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """The output of the process so far."""
        return self._log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """The URL that the process has printed, or an empty string."""
        found = re.search(r"is served at (http://\S+?)[. ]( |Tools|by)", self.log)
        return found[1] if found else ""

    def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)


@contextmanager
def running(
    *words: Path | str,
    directory: Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    python: str = sys.executable,
    command: str = "run",
) -> Iterator[Running]:
    """Run `antiphon run --port 0` until the block ends. Its log is written to `directory`.

    `words` are the target and further options, or a program after `--`. `python` has to find the library.
    """
    log = directory / "server.log"
    with log.open("w") as sink:
        process = start_process(
            [python, "-m", "antiphon", command, "--port", "0", *map(str, words)],
            cwd=cwd,
            env=plain_environment(env),
            stdout=sink,
            stderr=sink,
        )
    server = Running(process, log)
    try:
        wait_until(lambda: server.url or process.poll() is not None, PATIENCE)
        assert process.poll() is None, f"the server ended at once:\n{server.log}"
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()


def worker_processes(pid: int) -> list[int]:
    """Return the processes whose parent this is, and which serve: it is a supervisor."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if int(stat[1]) == pid and "spawn_main" in command:
                found.append(int(entry.name))
    return found


def listens(port: int) -> bool:
    """Return whether a process listens at a port."""
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return False
    return True


def plain_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without the ANTIPHON_ variables and the logins of the tests' user."""
    plain = {key: value for key, value in environment().items() if not key.startswith("ANTIPHON_")}
    return {**plain, "XDG_STATE_HOME": os.devnull, **(more or {})}
