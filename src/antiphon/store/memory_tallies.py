"""The numbers of tasks in a store in memory. Does not know how tasks change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.store.contract import HourlyTally, Tallies
from antiphon.store.rules import Row
from antiphon.store.tally_rules import (
    KEPT_MILLISECONDS,
    NOW,
    TallyCounter,
    TallyKey,
    hourly_tallies_of,
    tallies_of,
)

__all__ = ["MemoryTallies"]


class MemoryTallies(TallyCounter):
    """The numbers of tasks that there are, and of those that were created and ended in each hour."""

    def delete_old_hours(self, now: int) -> None:
        """Delete the numbers of old hours, and of tools that have no tasks."""
        for key, tasks in tuple(self.numbers.items()):
            if not tasks or NOW < key[0] < now - KEPT_MILLISECONDS:
                del self.numbers[key]

    def tallies(self, servers: Sequence[str] | None, expired: Sequence[Row]) -> Tallies:
        """Return the numbers of tasks on some servers, without the expired ones."""
        left_out = [
            (row.server, row.tool, row.tallied, 1)
            for row in expired
            if servers is None or row.server in servers
        ]
        rows = ((*key[1:], tasks) for key, tasks in self._of_servers(servers) if key[0] == NOW)
        return tallies_of(rows, left_out)

    def hourly(self, since: int, servers: Sequence[str] | None) -> list[HourlyTally]:
        """Return the numbers of tasks on some servers by hour."""
        rows = self._of_servers(servers)
        return hourly_tallies_of((*key, tasks) for key, tasks in rows if key[0] >= since and key[0] != NOW)

    def _of_servers(self, servers: Sequence[str] | None) -> Iterator[tuple[TallyKey, int]]:
        return (item for item in self.numbers.items() if servers is None or item[0][1] in servers)
