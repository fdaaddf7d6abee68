"""The faults, as a table: each befalls one process, or the store, and is over when its function returns."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.soak.fleet import LEASE_SECONDS, Build, Fleet, Process
from tests.soak.stores import Store
from tests.support.polling import pause

__all__ = ["FAULTS", "Fault", "Scene", "make_peace"]

_ROOM_IN_FILES = 64 * 1024
"""How much longer than its notes a file of a process may get whose disk is full."""


@dataclass
class Scene:
    """Where a fault happens."""

    store: Store
    fleet: Fleet
    random: random.Random
    builds: Sequence[Build]
    """What a process may run when it was stopped and is started again."""
    jumps: Sequence[float]
    """By how many seconds clocks are set wrong."""

    def while_leases_end(self) -> Awaitable[None]:
        """Wait until leases have ended."""
        return pause(LEASE_SECONDS * self.random.uniform(1.5, 3))


@dataclass(frozen=True)
class Fault:
    """What happens to a process, or to the store."""

    happen: Callable[[Scene, Process], Awaitable[None]]
    hits_store: bool = False
    ends_runs: bool = False
    """Whether the runs of the process are lost as if it had died."""
    stores: tuple[str, ...] = ("sqlite", "postgres")


async def _kill(scene: Scene, process: Process) -> None:
    process.signal(signal.SIGKILL, ends_it="kill")
    await scene.fleet.restart(process)


async def _stop(scene: Scene, process: Process) -> None:
    """Stop in order, and start again as another build, as a rollout does."""
    process.signal(signal.SIGTERM, ends_it="stop")
    await scene.fleet.restart(process, scene.random.choice(scene.builds))


async def _pause(scene: Scene, process: Process) -> None:
    process.signal(signal.SIGSTOP)
    await scene.while_leases_end()
    process.signal(signal.SIGCONT)


async def _jump(scene: Scene, process: Process) -> None:
    process.clock.write_text(str(scene.random.choice(scene.jumps)))


async def _fill_database(scene: Scene, process: Process) -> None:
    """Let the database of a process not grow (`PRAGMA max_page_count`)."""
    process.full.touch()
    await scene.while_leases_end()
    process.full.unlink()


async def _fill_disk(scene: Scene, process: Process) -> None:
    """Let no file of a process grow beyond a size that its notes do not have (`RLIMIT_FSIZE`)."""
    pid = process.process.pid
    notes = process.clock.parent / "notes"
    longest = max((file.stat().st_size for file in notes.glob(f"{pid}-*")), default=0)
    _limit_files(pid, longest + _ROOM_IN_FILES)
    await scene.while_leases_end()
    _limit_files(pid, None)


def _limit_files(pid: int, size: int | None) -> None:
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))
    except ProcessLookupError:
        pass  # it has ended meanwhile


async def _lock(scene: Scene, process: Process) -> None:
    async with scene.store.locked():
        await scene.while_leases_end()


def _server(name: str) -> Callable[[Scene, Process], Awaitable[None]]:
    """Return what puts the PostgreSQL server into a state for longer than a lease."""

    async def happen(scene: Scene, process: Process) -> None:
        store: Any = scene.store
        async with getattr(store, name)():
            await scene.while_leases_end()

    return happen


FAULTS: Mapping[str, Fault] = {
    "kill": Fault(_kill, ends_runs=True),
    "stop": Fault(_stop),
    "pause": Fault(_pause, ends_runs=True),
    "jump": Fault(_jump),
    "full database": Fault(_fill_database, stores=("sqlite",)),
    "full disk": Fault(_fill_disk, stores=("sqlite",)),
    "outage": Fault(_lock, hits_store=True),
    "killed server": Fault(_server("killed"), hits_store=True, stores=("postgres",)),
    "stopped server": Fault(_server("stopped"), hits_store=True, stores=("postgres",)),
    "read-only server": Fault(_server("read_only"), hits_store=True, stores=("postgres",)),
}


def make_peace(scene: Scene) -> None:
    """Set right what faults leave wrong."""
    for process in scene.fleet.processes:
        process.clock.write_text("0")
        process.full.unlink(missing_ok=True)
