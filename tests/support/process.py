"""Servers in processes of their own, each on a free port."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import antiphon
from tests.support.fork_server import PythonProcess, start_process
from tests.support.polling import DEADLINE, wait_until

ROOT = Path(__file__).parent.parent.parent
SERVERS = Path(__file__).parent / "servers"


class ServerProcess:
    """A running server."""

    def __init__(self, process: PythonProcess, port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def log(self) -> str:
        """The output of the process."""
        return self._log.read_text(errors="replace")

    @property
    def memory(self) -> int:
        """The resident memory of the process, in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak(self) -> int:
        """The peak memory of the process, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


def free_port() -> int:
    """Return a free port below those that the system gives out, so that nobody gets it meanwhile."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process that can import the library and the tests."""
    paths = [str(Path(antiphon.__file__).parent.parent), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(more or {})}


@contextmanager
def started(
    script: Path | str,
    directory: Path,
    *,
    env: Mapping[str, str] | None = None,
    within: float = 60.0,
    command: bool = False,
    port: int | None = None,
    options: Sequence[str] = (),
    descriptors: tuple[int, int] | None = None,
) -> Iterator[ServerProcess]:
    """Run `python SCRIPT PORT`, or `antiphon run SCRIPT`; wait for its port, and stop it afterwards.

    `options` are further options of the command. `descriptors` are the soft and the hard limit of open files.
    """
    port = free_port() if port is None else port
    path = SERVERS / script
    log = directory / f"{path.stem}-{port}.log"
    arguments = (
        ["-m", "antiphon", "run", str(path), "--port", str(port)] if command else [str(path), str(port)]
    )
    limit = ["prlimit", "--nofile={}:{}".format(*descriptors)] if descriptors else []
    with log.open("wb") as sink:
        process = start_process(
            [*limit, sys.executable, *arguments, *options],
            cwd=ROOT,
            env=environment(env),
            stdout=sink,
            stderr=sink,
        )
    server = ServerProcess(process, port, log)
    try:
        wait_for(server, within)
        yield server
    finally:
        end(process)


def end(process: PythonProcess | subprocess.Popen[Any]) -> None:
    """End a process, by force if it does not end by itself."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def wait_for(server: ServerProcess, within: float) -> None:
    """Wait until a server accepts connections."""

    def accepts() -> bool:
        assert server.process.poll() is None, f"the server ended at once:\n{server.log}"
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", server.port), within).close()
            return True
        return False

    wait_until(accepts, within)
