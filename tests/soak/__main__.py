"""Run the soak: `python -m tests.soak [--store sqlite|postgres] [--phase NAME] [--scale N] [--seed N]`."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.soak.driver import Soak, report
from tests.soak.judge import Violation, show
from tests.soak.phases import PHASES, Phase
from tests.soak.ratio import LOSSES, measure
from tests.soak.stores import PostgresStore, SqliteStore, Store
from tests.soak.versions import NoHistory, unpack
from tests.support.postgres import Postgres, postgres

MOST_SHOWN = 10
"""Of how many tasks everything is printed."""


def main() -> None:
    """Run each phase on each store, and exit with 1 if there are violations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--phase", choices=[*(phase.name for phase in PHASES), *LOSSES], action="append")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how much longer than usual there is trouble"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    chosen = [phase for phase in PHASES if not given.phase or phase.name in given.phase]
    phases = [
        replace(one, tasks=int(one.tasks * given.scale), seconds=one.seconds * given.scale) for one in chosen
    ]
    folder = Path(tempfile.mkdtemp(prefix="antiphon-soak-"))
    print(f"seed {given.seed}, files in {folder}", flush=True)
    try:
        older = unpack(folder)
    except NoHistory as error:
        shutil.rmtree(folder)
        sys.exit(str(error))
    works: list[Callable[[Store, Path], Coroutine[Any, Any, bool]]] = [
        *(partial(_run, phase, given.seed, older) for phase in phases),
        *(partial(_measure, loss) for loss in LOSSES if not given.phase or loss in given.phase),
    ]
    failed = False
    for kind in given.store or ["sqlite", "postgres"]:
        with _server(kind) as server:
            for number, work in enumerate(works):
                place = folder / f"{kind}-{number}"
                place.mkdir()
                store = SqliteStore(place) if server is None else PostgresStore(server)
                failed |= asyncio.run(work(store, place))
    if not failed:
        shutil.rmtree(folder)
    sys.exit(f"The files are in {folder}. Run it again with --seed {given.seed}." if failed else 0)


@contextmanager
def _server(kind: str) -> Iterator[Postgres | None]:
    if kind == "sqlite":
        yield None
        return
    with postgres() as server:
        yield server


async def _run(phase: Phase, seed: int, older: Path, store: Store, folder: Path) -> bool:
    soak = Soak(phase, store, folder, seed=seed, older=older)
    violations = await soak.run()
    print(report(soak, violations), flush=True)
    return await _show(soak, violations)


async def _measure(loss: str, store: Store, folder: Path) -> bool:
    soak, ratios, violations = await measure(store, folder, loss)
    print(report(soak, violations), flush=True)
    for times, ratio in ratios.items():
        print(f"  after {times} times, ratio to the ideal and two leases: {ratio:.2f}", flush=True)
    return await _show(soak, violations)


async def _show(soak: Soak, violations: Sequence[Violation]) -> bool:
    """Print everything about the first tasks of violations; return whether there are any."""
    if violations:
        evidence = await soak.evidence()
        print(*violations, sep="\n", flush=True)
        for task in list(dict.fromkeys(violation.task for violation in violations))[:MOST_SHOWN]:
            print(show(task, evidence), flush=True)
    return bool(violations)


if __name__ == "__main__":
    main()
