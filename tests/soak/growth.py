"""Judges whether a process grows, from samples that were taken at rest after each round of load."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

__all__ = ["TOLERANCES", "Sample", "find_growth"]

Sample = Mapping[str, int]

TOLERANCES: Mapping[str, tuple[float, float]] = {
    "memory": (4_000_000, 0.05),
    "objects": (600, 0.01),
    "descriptors": (2, 0.0),
    "threads": (2, 0.0),
    "files": (2, 0.0),
    "coroutines": (2, 0.0),
}
"""How much each quantity may grow over a whole run: so many units, or this part of its median."""
_RISING = 0.4
"""Which surplus of rising pairs over falling ones makes a trend."""


def find_growth(samples: Sequence[Sample], warm_up: int) -> list[str]:
    """Return a sentence for each quantity that grows after the first `warm_up` samples.

    Growth is the median slope between any two samples (Theil and Sen), times the number of rounds. So a few
    samples that are off do not matter. It has to be larger than the tolerance, and most pairs have to rise:
    a step that happens once, such as a cache that fills up, does not make most of the pairs rise.
    """
    found = []
    for name, (units, part) in TOLERANCES.items():
        values = [sample[name] for sample in samples[warm_up:]]
        pairs = list(itertools.combinations(enumerate(values), 2))
        slope = statistics.median((later - early) / (b - a) for (a, early), (b, later) in pairs)
        rising = sum(later > early for (_, early), (_, later) in pairs)
        falling = sum(later < early for (_, early), (_, later) in pairs)
        growth = slope * (len(values) - 1)
        allowed = max(units, part * statistics.median(values))
        if growth > allowed and (rising - falling) / len(pairs) > _RISING:
            found.append(
                f"{name} grew by {growth:.0f} in {len(values)} rounds, {allowed:.0f} allowed: {values}"
            )
    return found
