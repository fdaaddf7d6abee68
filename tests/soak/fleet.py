"""The processes of the service: each is started again at its port when it has ended, whatever ended it.

Owns who ended which process. A process that nobody ended and that no task was meant to end is a violation.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.fork_server import start_process
from tests.support.polling import moment, pause, until
from tests.support.process import ROOT, environment, free_port

__all__ = ["LEASE_SECONDS", "Build", "Death", "Fleet", "Process", "Settings"]

SERVICE = Path(__file__).parent / "service.py"
LEASE_SECONDS = 1.0


class Build(NamedTuple):
    """What a process runs."""

    library: str = "new"
    """`new`, or `old` for the library of a hundred commits ago."""
    version: str = "a"
    """The version of the tools."""


class Death(NamedTuple):
    """A process has ended."""

    at: float
    process: int
    code: int
    cause: str | None
    """The fault that ended it; `None` if nobody outside did."""


@dataclass(frozen=True)
class Settings:
    """What all processes of a fleet have in common."""

    store: str
    folder: Path
    older: Path | None = None
    """The path to import the older library from."""
    fenced: bool = True


class Process:
    """One process of the service, restarted at the same port."""

    def __init__(self, settings: Settings, number: int, build: Build) -> None:
        self.number = number
        self.build = build
        self.port = free_port()
        self.clock = settings.folder / f"clock-{number}"
        self.full = settings.folder / f"full-{number}"
        self.busy = asyncio.Lock()
        """Held by the fault that is under way."""
        self.ending: str | None = None
        """The fault that ends it."""
        self.has_served = False
        self._settings = settings
        self._log = settings.folder / f"service-{number}.log"
        self.clock.write_text("0")
        self.start()

    @property
    def log(self) -> str:
        """The output of all processes at this port."""
        return self._log.read_text(errors="replace")

    @property
    def is_listening(self) -> bool:
        """Whether the process accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start(self, build: Build | None = None) -> None:
        """Start the process, of another build perhaps."""
        self.build, self.ending, self.has_served = build or self.build, None, False
        settings = self._settings
        env = environment(
            {
                "ANTIPHON_STORE": settings.store,
                "SOAK_NOTES": str(settings.folder / "notes"),
                "SOAK_CLOCK": str(self.clock),
                "SOAK_FULL": str(self.full),
                "SOAK_LEASE": str(LEASE_SECONDS),
                "SOAK_LIBRARY": self.build.library,
                "SOAK_VERSION": self.build.version,
                **({} if settings.fenced else {"SOAK_UNFENCED": "1"}),
            }
        )
        if self.build.library == "old":
            assert settings.older is not None
            env["PYTHONPATH"] = f"{settings.older}:{env['PYTHONPATH']}"
        with self._log.open("ab") as sink:
            self.process = start_process(
                [sys.executable, str(SERVICE), str(self.port)], cwd=ROOT, env=env, stdout=sink, stderr=sink
            )

    def signal(self, number: int, *, ends_it: str | None = None) -> None:
        """Send a signal to the process, if it is alive."""
        if self.process.poll() is None:
            self.ending = ends_it or self.ending
            self.process.send_signal(number)

    async def ended(self) -> None:
        """Wait until the process has ended; kill it if that takes too long."""
        with contextlib.suppress(AssertionError):
            await until(lambda: self.process.poll() is not None, within=30)
        self.signal(signal.SIGKILL)
        await until(lambda: self.process.poll() is not None)


class Fleet:
    """The processes of one store."""

    def __init__(self, settings: Settings, builds: Sequence[Build]) -> None:
        (settings.folder / "notes").mkdir()
        self.processes = [Process(settings, number, build) for number, build in enumerate(builds)]
        self.deaths: list[Death] = []

    async def ready(self) -> None:
        """Wait until every process accepts connections."""
        for process in self.processes:
            try:
                await until(lambda process=process: process.is_listening, within=120)
            except AssertionError:
                raise AssertionError(process.log) from None
            process.has_served = True

    async def restart(self, process: Process, build: Build | None = None) -> None:
        """Note that a process has ended, and start it again."""
        await process.ended()
        self._note(process)
        process.start(build)

    async def supervise(self) -> None:
        """Start each process again that has ended without a fault."""
        while True:
            for process in self.processes:
                if process.busy.locked():
                    continue
                if process.process.poll() is not None:
                    self._note(process)
                    process.start()
                elif not process.has_served:
                    process.has_served = process.is_listening
            await pause(0.1)

    def _note(self, process: Process) -> None:
        code = process.process.poll()
        assert code is not None
        cause = process.ending
        if cause is None and not process.has_served:
            cause = "could not start"  # the store was away
        self.deaths.append(Death(moment(), process.process.pid, code, cause))

    async def stop(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM, ends_it="the end")
        await asyncio.gather(*(process.ended() for process in self.processes))
