"""Measurements of several rounds, in words and ratios: medians, so that one disturbed round counts little.

It owns the columns that benchmarks of throughput have in common, and knows nothing of what was measured.
"""

import statistics
from collections.abc import Sequence

from job import Measurement
from report import Table

__all__ = ["COLUMNS", "described", "line", "ratio", "ratio_table"]

COLUMNS = ("spread", "median ms", "p99 ms", "server CPU µs", "errors", "generator busy")
"""What `line` says after the name and the rate."""


def line(name: str, measured: Sequence[Measurement]) -> list[str]:
    """One row of a table: the name, the rate, and the columns above; medians over the rounds."""

    def middle(attribute: str) -> float:
        return statistics.median(float(getattr(one, attribute)) for one in measured)

    rates = [one.per_second for one in measured]
    return [
        name,
        f"{middle('per_second'):,.0f}",
        f"{min(rates):,.0f}–{max(rates):,.0f}",
        f"{middle('median_ms'):.2f}",
        f"{middle('p99_ms'):.2f}",
        f"{middle('server_cpu_us'):.0f}",
        str(sum(one.errors for one in measured)),
        f"{middle('generator_busy'):.0%}",
    ]


def ratio(
    name: str, ours: Sequence[Measurement], theirs: Sequence[Measurement], aim: str
) -> dict[str, str | float]:
    """How many times as much ours does as theirs, a second and for its CPU time: medians within rounds."""
    pairs = list(zip(ours, theirs, strict=True))
    rate = statistics.median(mine.per_second / other.per_second for mine, other in pairs)
    cpu = statistics.median(other.server_cpu_us / mine.server_cpu_us for mine, other in pairs)
    return {"name": name, "rate": round(rate, 3), "cpu": round(cpu, 3), "aim": aim}


def ratio_table(found: Sequence[dict[str, str | float]]) -> Table:
    """A table of ratios that `ratio` has returned."""
    return Table(
        ("ratio", "answers/s", "by CPU", "aim"),
        [[str(r["name"]), f"{r['rate']:.2f}", f"{r['cpu']:.2f}", str(r["aim"])] for r in found],
    )


def described(connections: int, rounds: int, seconds: float) -> str:
    """What benchmarks of plain answers over HTTP measure, in words."""
    return (
        f"`tools/call` of `add(a: int, b: int) -> str`, {connections} keep-alive connections, one worker; "
        f"medians of {rounds} interleaved rounds of {seconds:g} s."
    )
