"""How much longer than necessary tasks take whose workers were lost through no fault of theirs.

Twelve tasks of one long step run on three workers. All workers are killed twice, or the store is away twice
for longer than a lease. From then on, the step and two leases are enough. The judge looks at these tasks too.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tests.soak.driver import Soak
from tests.soak.fleet import LEASE_SECONDS
from tests.soak.judge import Violation
from tests.soak.phases import Phase
from tests.soak.stores import Store

__all__ = ["LOSSES", "measure"]

TASKS = 12
WORKERS = 3
TIMES = 2
STEP_LEASES = 6.0
NEEDED_SECONDS = (STEP_LEASES + 2) * LEASE_SECONDS
MOST = 10.0
"""More than this is no delay: it is a fleet that runs its tasks one after the other."""


async def _kill_all(soak: Soak, times: int) -> None:
    await _all_begun(soak, times)
    for process in soak.fleet.processes:
        process.signal(signal.SIGKILL, ends_it="kill")
    for process in soak.fleet.processes:
        await soak.fleet.restart(process)
    await soak.fleet.ready()


async def _lock_store(soak: Soak, times: int) -> None:
    async with soak.store.locked():
        await asyncio.sleep(2.5 * LEASE_SECONDS)
    await asyncio.sleep(0.5 * LEASE_SECONDS)


LOSSES: Mapping[str, Callable[[Soak, int], Awaitable[None]]] = {
    "killed workers": _kill_all,
    "outages": _lock_store,
}


async def measure(store: Store, folder: Path, loss: str) -> tuple[Soak, float, list[Violation]]:
    """Let all workers be lost twice; return the time that followed as a ratio, and the violations."""
    phase = Phase(f"twelve long steps, two times {loss}", ("long",), (), processes=WORKERS, tasks=TASKS)
    soak = Soak(phase, store, folder, seed=1)
    try:
        await soak.fleet.ready()
        for number in range(TASKS):
            worker = soak.fleet.processes[number % WORKERS]
            await soak.callers.give(number, "long", at=worker, leases=STEP_LEASES)
        await _all_begun(soak, 1)
        for times in range(1, TIMES + 1):
            soak.done[loss] += 1
            await LOSSES[loss](soak, times)
        began = time.monotonic()
        await soak.all_ended(within=MOST * NEEDED_SECONDS)
        soak.took = time.monotonic() - began
    finally:
        await soak.stop()
    return soak, soak.took / NEEDED_SECONDS, await soak.violations()


async def _all_begun(soak: Soak, times: int) -> None:
    """Wait until each task has begun so often, or for long enough that it would have."""
    deadline = time.monotonic() + MOST * LEASE_SECONDS
    while time.monotonic() < deadline:
        begun = Counter(note.number for note in soak.notes() if note.event == "begin")
        if len(begun) == TASKS and min(begun.values()) >= times:
            return
        await asyncio.sleep(0.05)
