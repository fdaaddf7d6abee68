"""Starts commands and servers for the tests, forked from a process that has imported the libraries they use.

Tests start some thousand processes. A new interpreter would spend most of its CPU time on the imports of the
same libraries. Antiphon itself is not imported before the fork: each process imports the modules it needs.
This module must not import Antiphon.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeAlias

__all__ = ["ForkedProcess", "PythonProcess", "run_process", "start_process"]

ROOT = Path(__file__).parent.parent.parent
PRELOADED = (
    "aiohttp",
    "asyncio",
    "concurrent.futures.thread",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "hmac",
    "httptools",
    "importlib.metadata",
    "inspect",
    "logging",
    "msgspec",
    "pydantic.json_schema",
    "pydantic.main",
    "pydantic.plugin._loader",
    "pydantic.type_adapter",
    "rich.console",
    "rich.table",
    "secrets",
    "sqlite3",
    "typer",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "zoneinfo",
)
AT_START = ("PYTHON", "SSL_", "LC_", "LANG", "LD_", "OPENSSL", "MALLOC")
"""How the names of variables begin that an interpreter or a library reads only when it starts."""
NUMBER = struct.Struct("q")
PythonProcess: TypeAlias = "ForkedProcess | subprocess.Popen[bytes]"


class ForkedProcess:
    """A process of the fork server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], status: socket.socket) -> None:
        self.args = args
        self.returncode: int | None = None
        self._status = status
        self.pid = self._receive()

    def poll(self) -> int | None:
        """Return the exit code; `None` while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = self._receive()
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            select.select([self._status], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _receive(self) -> int:
        received = self._status.recv(NUMBER.size, socket.MSG_WAITALL)
        assert received, "the fork server has ended"
        return int(NUMBER.unpack(received)[0])


def start_process(
    args: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]
) -> PythonProcess:
    """Start a command with an empty input: by a fork if it is `python -m MODULE …` or `python SCRIPT …`.

    Another command gets a process in the usual way, and so does one with other variables of `AT_START`.
    """
    if args[0] != sys.executable or _read_at_start(env) != _read_at_start(os.environ):
        return subprocess.Popen(
            args, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )
    ours, theirs = socket.socketpair()
    with theirs, tempfile.TemporaryFile() as request, open(os.devnull, "rb") as empty:
        request.write(json.dumps([args[1:], str(cwd), dict(env)]).encode())
        request.flush()
        files = [file.fileno() for file in (request, theirs, empty, stdout, stderr)]
        socket.send_fds(_fork_server(env["PYTHONPATH"]), [b"."], files)
        return ForkedProcess(args, ours)


def run_process(
    args: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `start_process` does, and return its output and exit code."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    with open(out, encoding="utf-8") as printed, open(err, encoding="utf-8") as complained:
        with open(out_end, "wb") as stdout, open(err_end, "wb") as stderr:
            process = start_process(args, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(pipe.read) for pipe in (printed, complained)]
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            return subprocess.CompletedProcess(args, code, *(read.result() for read in reading))


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must not differ from the fork server's. It has the right path."""
    return {name: value for name, value in env.items() if name.startswith(AT_START) and name != "PYTHONPATH"}


@functools.cache
def _fork_server(path: str) -> socket.socket:
    """Start the process that forks the others, and return the socket for requests to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def serve(requests: socket.socket) -> list[int] | None:
    """Fork a process for each request, and report its id and its exit code.

    Returns the files of the request in the forked process, and `None` in the server when the tests end.
    """
    running: dict[int, socket.socket] = {}
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _report_ended(running)
        if requests in ready:
            message, files, _, _ = socket.recv_fds(requests, 1, 5)
            if not message:
                return None
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                for each in (requests, woken, waker, *running.values()):
                    each.close()
                return files
            running[pid] = socket.socket(fileno=files.pop(1))
            running[pid].send(NUMBER.pack(pid))
            for file in files:
                os.close(file)


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as waiting, contextlib.suppress(OSError):  # the test may have gone
            waiting.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def run(files: Sequence[int]) -> None:
    """Run the program of a request in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(files[0], closefd=False) as request:
        request.seek(0)
        arguments, cwd, env = json.load(request)
    for target, file in enumerate(files[2:]):
        os.dup2(file, target)
    for file in files:
        os.close(file)
    # Whether a stream can seek is decided when it is made.
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, _reopened(getattr(sys, name)))
    os.environ.clear()
    os.environ.update(env)
    if (coverage := sys.modules.get("coverage")) and (measured := coverage.Coverage.current()):
        measured.switch_context(env.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
    os.chdir(cwd)
    if arguments[0] == "-m":
        sys.path[0] = cwd
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(arguments[0]).parent)
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def _reopened(stream: Any) -> Any:
    """Return a stream like one of the interpreter's, for the file that has its number now."""
    through = stream.write_through  # so it is with PYTHONUNBUFFERED
    file = os.fdopen(stream.fileno(), f"{stream.mode}b", buffering=0 if through else -1, closefd=False)
    options = {"line_buffering": stream.line_buffering, "write_through": through}
    return io.TextIOWrapper(file, stream.encoding, stream.errors, **options)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector of a process would write to these objects, and so copy their pages
    if received := serve(socket.socket(fileno=int(sys.argv[1]))):
        run(received)
