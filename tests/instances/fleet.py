"""A fleet: `antiphon run` and `antiphon worker` as processes on one store, behind a plain load balancer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.command import COMMAND, plain_environment
from tests.instances.pair import SECRET
from tests.support import http
from tests.support.fork_server import PythonProcess, start_process
from tests.support.polling import until
from tests.support.process import ROOT, SERVERS, end, free_port
from tests.support.proxy import RoundRobin, round_robin

FILE = SERVERS / "fleet.py"
READY_SECONDS = 300.0
"""How long a fleet may take to start on a slow machine."""


class Member:
    """One process, which can be killed and started again at the same port."""

    def __init__(
        self, name: str, arguments: list[str], directory: Path, port: int, env: dict[str, str]
    ) -> None:
        self.name = name
        self.port = port
        self._arguments = [*COMMAND, *arguments, "--port", str(port)]
        self._log = directory / f"{name}.log"
        self._env = plain_environment(env)
        self.process: PythonProcess
        self.start()

    @property
    def log(self) -> str:
        """The output of the process."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        with self._log.open("ab") as sink:
            self.process = start_process(self._arguments, cwd=ROOT, env=self._env, stdout=sink, stderr=sink)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    async def ready(self) -> None:
        """Wait until the process is ready."""

        async def is_ready() -> bool:
            assert self.process.poll() is None, self.log
            try:
                return (await http.request(self.port, "GET", {}, path="/readyz")).status == 200
            except (OSError, asyncio.IncompleteReadError):
                return False

        await until(is_ready, READY_SECONDS)


class Fleet:
    """The servers, the workers, and the load balancer in front."""

    def __init__(self, servers: list[Member], workers: list[Member], balancer: RoundRobin) -> None:
        self.servers = servers
        self.workers = workers
        self.port = balancer.port
        self.balancer = balancer

    @property
    def all(self) -> list[Member]:
        """All processes."""
        return [*self.servers, *self.workers]


@asynccontextmanager
async def fleet(
    store: str, directory: Path, *, servers: int = 3, workers: int = 2, **env: str
) -> AsyncIterator[Fleet]:
    """Start servers and workers behind a load balancer, and wait until they are ready."""
    env = {"ANTIPHON_SECRETS": SECRET, "EFFECTS": str(directory / "effects"), **env}
    (directory / "effects").touch()
    serving = ["run", str(FILE), "--store", store, "--no-worker"]
    working = ["worker", str(FILE), "--store", store, "--concurrency", "20"]
    members = [Member(f"server-{n}", serving, directory, free_port(), env) for n in range(servers)]
    members += [Member(f"worker-{n}", working, directory, free_port(), env) for n in range(workers)]
    try:
        await asyncio.gather(*(member.ready() for member in members))
        async with round_robin([member.port for member in members[:servers]]) as balancer:
            yield Fleet(members[:servers], members[servers:], balancer)
    finally:
        for member in members:
            if member.process.poll() is None:
                member.process.terminate()
        for member in members:
            end(member.process)
