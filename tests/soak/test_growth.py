"""A short soak for growth, and the judge of growth."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.growing_soak import soak
from tests.soak.growth import TOLERANCES, Sample, find_growth

ROUNDS = 7
STEADY = {
    "memory": 60_000_000,
    "objects": 50_000,
    "descriptors": 25,
    "threads": 9,
    "files": 3,
    "coroutines": 10,
}

linux_alone = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux_alone
async def test_a_server_under_mixed_load_does_not_grow(tmp_path: Path) -> None:
    assert await soak(tmp_path, lambda rounds: rounds < ROUNDS, size=1) == []


@linux_alone
async def test_a_server_that_leaks_is_found_out(tmp_path: Path) -> None:
    problems = await soak(tmp_path, lambda rounds: rounds < ROUNDS, size=2, leaks=True, kills=False)
    grown = {problem.partition(" grew")[0] for problem in problems if " grew" in problem}
    assert {"memory", "objects", "descriptors", "threads", "files"} <= grown, problems


def _samples(value: Callable[[str, int], float], count: int = 30) -> list[Sample]:
    return [{name: int(value(name, number)) for name in STEADY} for number in range(count)]


def test_samples_that_are_steady_show_no_growth() -> None:
    chance = random.Random(1)
    steady = _samples(lambda name, number: STEADY[name] * chance.uniform(0.98, 1.02))
    assert find_growth(steady, 10) == []


@pytest.mark.parametrize("grown", TOLERANCES)
def test_a_slow_growth_is_found_among_noise(grown: str) -> None:
    chance = random.Random(2)

    def value(name: str, number: int) -> float:
        noise = chance.uniform(0.998, 1.002) if name in ("memory", "objects") else 1
        step = {"memory": 400_000, "objects": 60}.get(name, 0.25)
        return STEADY[name] * noise + (number * step if name == grown else 0)

    assert [problem.partition(" ")[0] for problem in find_growth(_samples(value), 10)] == [grown]


def test_a_cache_that_fills_up_and_a_single_peak_are_no_growth() -> None:
    filled = _samples(lambda name, number: STEADY[name] * (1 + 0.04 * min(number, 8) / 8))
    peak = _samples(lambda name, number: STEADY[name] * (3 if number == 20 else 1))
    assert find_growth(filled, 10) == []
    assert find_growth(peak, 10) == []
