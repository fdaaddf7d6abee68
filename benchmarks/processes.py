"""Processes under measurement: start, pin to a core, watch, and end by their id.

It owns how a server process lives and what the kernel says of it. Everything waits with a deadline.
"""

import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "child_ids",
    "cores",
    "cpu_seconds",
    "paused",
    "pin",
    "raise_descriptor_limit",
    "resident_mb",
    "running",
]

STARTUP = 60.0
"""Seconds a server may take until it accepts connections."""


def cores() -> tuple[int | None, int | None]:
    """The core for servers and the core for load, or none of either on a machine with one core."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (usable[0], usable[1]) if len(usable) > 1 else (None, None)


def pin(pid: int, core: int | None) -> None:
    """Keep process `pid` (0: this one) on `core`, where there is one to keep it on."""
    if core is not None:
        os.sched_setaffinity(pid, {core})


def raise_descriptor_limit(wanted: int) -> None:
    """Let this process and those that it starts open `wanted` files; raises RuntimeError if they may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise RuntimeError(
            f"{wanted} open files are needed, and the hard limit is {hard}: raise it (ulimit -Hn)"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def paused(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes of ours for a while: what they do now and then would interrupt others on their core."""
    stopped = list(pids)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def child_ids(pid: int) -> list[int]:
    """The ids of the processes that a process has started, from Linux's `/proc`; else none."""
    try:
        return [int(id) for id in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its threads and its children, from Linux's `/proc`; else 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, child_ids(pid)))


def resident_mb(pid: int) -> float:
    """Resident memory of a process in megabytes, from Linux's `/proc`."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def running(python: Path, script: Path, core: int | None) -> Iterator[tuple[int, int]]:
    """A server process on a free loopback port: yields (process id, port), and ends it after.

    What it keeps in temporary files goes with it.
    """
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user where this one is root
        process = subprocess.Popen(
            [python, script, str(port)],
            cwd=script.parent,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": folder},
        )
        try:
            pin(process.pid, core)
            _wait_until_open(process, port)
            yield process.pid, port
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_open(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + STARTUP
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode} before it answered")
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not open port {port} within {STARTUP:.0f} s")
