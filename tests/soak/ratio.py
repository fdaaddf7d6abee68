"""How much longer than necessary tasks take whose workers were lost through no fault of theirs.

Twelve tasks of one long step run on three workers. First nothing happens to them: that is the ideal. Then all
workers are killed two times and three times, or the store is away so often for longer than a lease. After the
last time, the ideal and two leases are enough. The judge looks at these tasks too.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tests.soak.driver import Soak
from tests.soak.fleet import LEASE_SECONDS
from tests.soak.judge import Violation
from tests.soak.phases import Phase
from tests.soak.stores import Store
from tests.support.polling import moment, pause

__all__ = ["LOSSES", "measure", "too_slow"]

TASKS = 12
WORKERS = 3
TIMES = (2, 3)
STEP_LEASES = 6.0
MOST = 3.0
"""More than this is no delay: it is a fleet that runs its tasks one after the other."""
_PATIENCE = 20.0
"""After how many times of what is needed the driver waits no longer."""


async def _kill_all(soak: Soak, tasks: Sequence[int], times: int) -> None:
    await _all_begun(soak, tasks, times)
    for process in soak.fleet.processes:
        process.signal(signal.SIGKILL, ends_it="kill")
    for process in soak.fleet.processes:
        await soak.fleet.restart(process)
    await soak.fleet.ready()


async def _lock_store(soak: Soak, tasks: Sequence[int], times: int) -> None:
    async with soak.store.locked():
        await pause(2.5 * LEASE_SECONDS)
    await pause(0.5 * LEASE_SECONDS)


LOSSES: Mapping[str, Callable[[Soak, Sequence[int], int], Awaitable[None]]] = {
    "killed workers": _kill_all,
    "outages": _lock_store,
}


async def measure(store: Store, folder: Path, loss: str) -> tuple[Soak, dict[int, float], list[Violation]]:
    """Let all workers be lost; return the time that followed as a ratio, by how often, and the violations."""
    soak = Soak(
        Phase(f"twelve long steps and {loss}", ("long",), (), processes=WORKERS), store, folder, seed=1
    )
    ratios: dict[int, float] = {}
    began = moment()
    try:
        await soak.fleet.ready()
        needed = await _run(soak, 0, loss, 0, 0.0) + 2 * LEASE_SECONDS
        for place, times in enumerate(TIMES, 1):
            ratios[times] = await _run(soak, place * TASKS, loss, times, needed) / needed
    finally:
        await soak.stop()
    soak.took = moment() - began
    return soak, ratios, [*await soak.violations(), *too_slow(loss, ratios)]


def too_slow(loss: str, ratios: Mapping[int, float]) -> list[Violation]:
    """Return the ratios that are no delay any more."""
    return [
        Violation(
            "ratio", None, f"after {times} times {loss}, tasks took {ratio:.1f} times as long as needed"
        )
        for times, ratio in ratios.items()
        if ratio > MOST
    ]


async def _run(soak: Soak, first: int, loss: str, times: int, needed: float) -> float:
    """Run new tasks, and let all workers be lost so often; return how long the tasks took from then on."""
    tasks = range(first, first + TASKS)
    began = moment()
    for number in tasks:
        worker = soak.fleet.processes[number % WORKERS]
        await soak.callers.give(number, "long", at=worker, leases=STEP_LEASES)
    if times:
        await _all_begun(soak, tasks, 1)
    for time_of_loss in range(1, times + 1):
        soak.done[loss] += 1
        await LOSSES[loss](soak, tasks, time_of_loss)
        began = moment()
    await soak.all_ended(within=_PATIENCE * (needed or STEP_LEASES * LEASE_SECONDS))
    return moment() - began


async def _all_begun(soak: Soak, tasks: Sequence[int], times: int) -> None:
    """Wait until each task has begun so often, or for long enough that it would have."""
    deadline = moment() + _PATIENCE * LEASE_SECONDS
    while moment() < deadline:
        begun = Counter(
            note.number for note in soak.notes() if note.event == "begin" and note.number in tasks
        )
        if len(begun) == TASKS and min(begun.values()) >= times:
            return
        await pause(0.05)
