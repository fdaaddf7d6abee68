"""Ends what the tests have started when pytest has ended, however it ended.

A process that is killed cannot stop the servers, browsers and commands that it has started. So each process
of pytest has a watcher, which holds a pipe of it. When the pipe closes, the watcher ends everything that was
started there, and removes its temporary files. It finds the processes by their environment: the folder of
temporary files stands in it, also last in PATH, which a program gets that gets only a few variables.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

__all__ = ["hold"]

SECONDS_TO_END = 30
ATTEMPTS = 10
"""How often what is still there is killed: it may have started more."""


@functools.cache
def hold() -> Path:
    """Start the watcher of this process, and return the folder of its temporary files.

    The folder, and what is started from now on, end with this process.
    """
    # Except for those that pytest keeps, for whoever looks into a failure.
    is_inner = "PYTEST_DEBUG_TEMPROOT" in os.environ
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # Chromium has a socket there, whose path must not be long: so the names of inner folders are short.
    folder = Path(tempfile.mkdtemp(prefix="" if is_inner else "antiphon-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    watcher = subprocess.Popen(
        [sys.executable, "-I", __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert watcher.stdin is not None
    os.register_at_fork(after_in_child=watcher.stdin.close)
    atexit.register(watcher.communicate)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{folder}"
    return folder


def started_in(folder: str) -> list[psutil.Process]:
    """Return the processes that have a folder in their environment, and those that these have started."""
    every = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE:
                every.append((process, process.ppid(), os.getsid(process.pid)))
    found: dict[int, psutil.Process] = {}
    for process, _, _ in every:
        with contextlib.suppress(psutil.Error, OSError):
            if folder in process.environ().get("PATH", ""):
                found[process.pid] = process
    while more := {
        process.pid: process
        for process, parent, session in every
        if process.pid not in found and (parent in found or session in found)
    }:
        found |= more
    return list(found.values())


def is_database(process: psutil.Process) -> bool:
    """Return whether a process is one of PostgreSQL."""
    with contextlib.suppress(psutil.Error):
        return bool(process.name() == "postgres")
    return False


def end_all(folder: str) -> None:
    """Kill what was started in a folder. PostgreSQL may first release its shared memory."""
    databases = [each for each in started_in(folder) if is_database(each)]
    for _ in range(ATTEMPTS):
        if not (processes := started_in(folder)):
            return
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGQUIT if process in databases else signal.SIGKILL)
        psutil.wait_procs(processes, timeout=SECONDS_TO_END)
        databases = []


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    end_all(sys.argv[1])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
