"""Run the soak: `python -m tests.soak [--store sqlite|postgres] [--seconds N] [--tasks N] [--seed N]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.driver import TOOLS, TROUBLES, Plan, Soak, report
from tests.support.postgres import postgres


def main() -> None:
    """Run once on each store, and exit with 1 if there are violations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long there is trouble")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--troubles", default=",".join(TROUBLES))
    parser.add_argument("--versions", default="a,b")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--unfenced", action="store_true", help="switch the check of tokens off")
    given = parser.parse_args()
    failed = False
    for kind in given.store or ["sqlite", "postgres"]:
        print(f"{kind}, seed {given.seed}: {given.tasks} tasks, {given.seconds:g} s of trouble", flush=True)
        with tempfile.TemporaryDirectory(prefix="antiphon-soak-") as folder:
            if kind == "sqlite":
                failed |= _run(given, f"sqlite:///{folder}/tasks.db", Path(folder))
            else:
                with postgres() as database:
                    failed |= _run(given, database.url(), Path(folder))
    sys.exit(1 if failed else 0)


def _run(given: argparse.Namespace, store: str, folder: Path) -> bool:
    plan = Plan(
        store,
        tasks=given.tasks,
        processes=given.processes,
        seconds=given.seconds,
        peace=60 + given.tasks / 10,
        seed=given.seed,
        troubles=[trouble for trouble in given.troubles.split(",") if trouble],
        versions=given.versions.split(","),
        tools=given.tools.split(","),
        fenced=not given.unfenced,
    )
    soak = Soak(plan, folder)
    violations = asyncio.run(soak.run())
    print(json.dumps(report(soak, violations), indent=2), flush=True)
    return bool(violations)


if __name__ == "__main__":
    main()
