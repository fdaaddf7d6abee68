"""Runs mixed load against one process, kills its neighbour meanwhile, and says what grew.

`python -m tests.soak.growing_soak [--seconds N] [--size N] [--leak]`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.soak.growth import TOLERANCES, Sample, find_growth
from tests.soak.mixed_load import Instance, MixedLoad
from tests.support.polling import Stopwatch

__all__ = ["soak"]

WARM_UP = 1 / 3
"""The part of the rounds in which caches fill up."""
FEWEST_ROUNDS = 8
ROUNDS_BETWEEN_KILLS = 3


async def soak(
    folder: Path,
    go_on: Callable[[int], bool],
    *,
    size: int,
    leaks: bool = False,
    kills: bool = True,
    show: Callable[[int, Sample], None] | None = None,
) -> list[str]:
    """Run rounds while `go_on(rounds)` says so; return what grew, and what the log should not have.

    The neighbour works on the same store. With `kills`, it is killed every few rounds, and the measured
    process takes over its tasks.
    """
    data = folder / "data"
    data.mkdir()
    measured = Instance(data, 1, leaks=leaks)
    neighbour = Instance(data, 2)
    samples: list[Sample] = []
    kinds: list[Mapping[str, int]] = []
    try:
        await measured.ready()
        await neighbour.ready()
        load, beside = MixedLoad(measured.port, size=size), MixedLoad(neighbour.port, size=1)
        while go_on(len(samples)):
            if kills and len(samples) % ROUNDS_BETWEEN_KILLS == 1:
                disturbed = asyncio.create_task(beside.round())
                samples.append(await load.round())
                neighbour.kill()
                await asyncio.gather(disturbed, return_exceptions=True)
                neighbour.start()
                await neighbour.ready()
            else:
                samples.append(await load.round())
            kinds.append(await load.kinds())
            if show is not None:
                show(len(samples), samples[-1])
    finally:
        measured.stop()
        neighbour.stop()
    warm_up = int(len(samples) * WARM_UP)
    problems = find_growth(samples, warm_up)
    if problems:
        more = Counter(kinds[-1])
        more.subtract(kinds[warm_up])
        problems.append(f"More objects than after the warm-up: {more.most_common(12)}")
    if "Traceback" in measured.log:
        problems.append(f"The log has a traceback:\n{measured.log[-4000:]}")
    return problems


def main() -> None:
    """Run for a set time, and exit with 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SOAK_SECONDS", "300")))
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--leak", action="store_true", help="let the service leak, to see it found")
    given = parser.parse_args()
    watch = Stopwatch()
    print(f"growth: {given.seconds:g} s of mixed load", flush=True)

    def show(number: int, sample: Sample) -> None:
        shown = ", ".join(f"{name} {sample[name]}" for name in TOLERANCES)
        print(f"  round {number}: {shown}", flush=True)

    with tempfile.TemporaryDirectory(prefix="antiphon-growth-") as folder:
        problems = asyncio.run(
            soak(
                Path(folder),
                lambda rounds: rounds < FEWEST_ROUNDS or watch.seconds < given.seconds,
                size=given.size,
                leaks=given.leak,
                show=show,
            )
        )
    print("\n".join(problems) or "Nothing grew.", flush=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
