"""How tasks are counted, the same for every store. Does not know where the numbers are kept.

A status is the phase of a task that has not ended, and the outcome of one that has; `ended` if its head does
not say the outcome. The triggers of the databases compute statuses and hours as this module does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias, cast

from antiphon.store.contract import Count, HourlyTally, Outcome, Phase, Tallies, Tally, TaskFilter
from antiphon.store.outcomes import OUTCOMES
from antiphon.store.rules import Row

__all__ = [
    "HOUR_MILLISECONDS",
    "KEPT_MILLISECONDS",
    "MAX_EXPIRED_TASKS",
    "NOW",
    "TallyCounter",
    "TallyKey",
    "count_of",
    "has_tally",
    "hour_of",
    "hourly_tallies_of",
    "tallies_of",
]

TallyKey: TypeAlias = tuple[int, str, str, str]
"""An hour or `NOW`, a server, a tool and a status."""

NOW = -1
"""Stands in place of an hour for the tasks that there are. No hour begins at this time."""

HOUR_MILLISECONDS = 3_600_000
"""The triggers of the databases have the same number."""
KEPT_MILLISECONDS = 14 * 24 * HOUR_MILLISECONDS
"""How long after the beginning of an hour its numbers are kept."""
_UNFINISHED = ("ready", "waiting")
"""The statuses of tasks that have not ended."""
MAX_EXPIRED_TASKS = 10_000
"""Expired tasks that one read of the tallies finds and leaves out. Usually they are deleted at once."""


class TallyCounter:
    """Counts tasks, or changes of tasks. Each row says under which status its task is counted."""

    def __init__(self) -> None:
        self.numbers: Counter[TallyKey] = Counter()

    def add(self, row: Row) -> None:
        """Count a new task."""
        self.numbers[hour_of(row.created), row.server, row.tool, "created"] += 1
        self._count(row)

    def change(self, row: Row, status: str) -> None:
        """Count a task under another status."""
        if row.tallied == status:
            return
        before, row.tallied = row.tallied, status
        self.numbers[NOW, row.server, row.tool, before] -= 1
        self._count(row, is_new_end=before in _UNFINISHED)

    def remove(self, row: Row) -> None:
        """Count a deleted task no longer."""
        self.numbers[NOW, row.server, row.tool, row.tallied] -= 1

    def _count(self, row: Row, *, is_new_end: bool = True) -> None:
        self.numbers[NOW, row.server, row.tool, row.tallied] += 1
        if is_new_end and row.tallied not in _UNFINISHED:
            self.numbers[hour_of(row.updated), row.server, row.tool, row.tallied] += 1


def hour_of(time: int) -> int:
    """Return when the hour of a time began. Times before 1970 are rounded up, as databases do."""
    hours = time // HOUR_MILLISECONDS if time >= 0 else -(-time // HOUR_MILLISECONDS)
    return hours * HOUR_MILLISECONDS


def has_tally(principal: str | None, filter: TaskFilter) -> bool:
    """Return whether tallies have the number of tasks in a list."""
    return principal is None and filter.created_before is None and filter.created_since is None


def tallies_of(
    rows: Iterable[tuple[str, str, str, int]], expired: Iterable[tuple[str, str, str, int]]
) -> Tallies:
    """Return tallies from the numbers by server, tool and status, without the expired tasks.

    There may be up to one more expired task than are left out.
    """
    numbers: Counter[tuple[str, str, str]] = Counter()
    for server, tool, status, tasks in rows:
        numbers[server, tool, status] += tasks
    left_out = 0
    for server, tool, status, tasks in expired:
        numbers[server, tool, status] -= tasks
        left_out += tasks
    found = (_tally(*key, tasks) for key, tasks in sorted(numbers.items()) if tasks > 0)
    return Tallies(tuple(found), is_exact=left_out <= MAX_EXPIRED_TASKS)


def count_of(tallies: Tallies, filter: TaskFilter) -> Count:
    """Return the number of tasks that match a filter without an age."""
    return Count(tallies.count(filter), is_exact=tallies.is_exact)


def hourly_tallies_of(rows: Iterable[tuple[int, str, str, str, int]]) -> list[HourlyTally]:
    """Return tallies from the numbers by hour, server, tool and kind."""
    return [HourlyTally(*row) for row in sorted(cast("Iterable[Any]", rows)) if row[-1] > 0]


def _tally(server: str, tool: str, status: str, tasks: int) -> Tally:
    phase: Phase = status if status in _UNFINISHED else "ended"  # type: ignore[assignment]
    outcome: Outcome | None = status if status in OUTCOMES else None
    return Tally(server, tool, phase, outcome, tasks)
