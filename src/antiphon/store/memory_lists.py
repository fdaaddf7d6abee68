"""The tasks of a store in memory in the order of their age, for its lists. Does not know how tasks change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from antiphon.store import rules
from antiphon.store.contract import Page, Phase
from antiphon.store.list_rules import TaskList, decode_cursor
from antiphon.store.memory_queues import StoredTask
from antiphon.store.outcomes import matches
from antiphon.store.rules import Row

__all__ = ["TaskLists"]


class TasksByAge:
    """Tasks sorted by age. A removed task is only marked; the list is rebuilt once half of it is marked."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._removed: set[int] = set()

    def add(self, row: Row) -> None:
        insort(self._keys, (row.created, row.key))

    def remove(self, row: Row) -> bool:
        """Remove a task; return true if no task is left."""
        self._removed.add(row.key)
        if len(self._removed) * 2 > len(self._keys):
            self._keys = [pair for pair in self._keys if pair[1] not in self._removed]
            self._removed.clear()
        return not self._keys

    def after(
        self, position: tuple[int, int], accept: Callable[[int], bool], limit: int, *, oldest_first: bool
    ) -> list[int]:
        """Return the keys of tasks after a position that are accepted."""
        found: list[int] = []
        for key in self._following(position, oldest_first):
            if len(found) == limit:
                break
            if key not in self._removed and accept(key):
                found.append(key)
        return found

    def _following(self, position: tuple[int, int], oldest_first: bool) -> Iterator[int]:
        if oldest_first:
            places: Iterable[int] = range(bisect_right(self._keys, position), len(self._keys))
        else:
            places = range(bisect_left(self._keys, position) - 1, -1, -1)
        return (self._keys[place][1] for place in places)


class TaskLists:
    """All tasks, and the tasks of each principal, in the order of their age."""

    def __init__(self, tasks: dict[int, StoredTask]) -> None:
        self._tasks = tasks
        self._all = TasksByAge()
        self._of_principal: dict[str, dict[str, TasksByAge]] = {}  # by principal and server

    def add(self, row: Row) -> None:
        """Add a new task."""
        self._all.add(row)
        self._of_principal.setdefault(row.principal, {}).setdefault(row.server, TasksByAge()).add(row)

    def remove(self, row: Row) -> None:
        """Remove a task."""
        self._all.remove(row)
        orders = self._of_principal[row.principal]
        if orders[row.server].remove(row):
            del orders[row.server]
        if not orders:
            del self._of_principal[row.principal]

    def page(self, wanted: TaskList, now: int) -> Page:
        """Return a page of a list."""
        rows = self._find(wanted, wanted.limit + 1, now)
        last = rows[wanted.limit - 1] if len(rows) > wanted.limit else None
        cursor = None if last is None else wanted.cursor_after(last.created, last.key)
        return Page(tuple(map(rules.record_of, rows[: wanted.limit])), cursor)

    def count(self, wanted: TaskList, now: int) -> int:
        """Return how many tasks a list has, up to its limit."""
        return len(self._find(wanted, wanted.limit, now))

    def count_of_principal(self, principal: str, phase: Phase, most: int) -> int:
        """Return the number of a principal's tasks in a phase, or `most` if there are more."""
        start, found = decode_cursor(None), 0
        for order in self._orders(principal, None):
            accept = lambda key: self._tasks[key].row.phase == phase  # noqa: E731
            found += len(order.after(start, accept, most, oldest_first=False))
        return min(found, most)

    def _find(self, wanted: TaskList, limit: int, now: int) -> list[Row]:
        servers, filter = wanted.servers, wanted.filter

        def accept(key: int) -> bool:
            row = self._tasks[key].row
            if not rules.is_live(row, now) or not (servers is None or row.server in servers):
                return False
            return matches(filter, rules.record_of(row))

        orders = self._orders(wanted.principal, servers)
        found = [
            self._tasks[key].row
            for order in orders
            for key in order.after(wanted.position, accept, limit, oldest_first=wanted.oldest_first)
        ]
        found.sort(key=lambda row: (row.created, row.key), reverse=not wanted.oldest_first)
        return found[:limit]

    def _orders(self, principal: str | None, servers: Sequence[str] | None) -> Sequence[TasksByAge]:
        """Return the sorted tasks of a principal on some servers, or of all principals on all servers."""
        if principal is None:
            return [self._all]
        orders = self._of_principal.get(principal, {})
        return [order for name, order in orders.items() if servers is None or name in servers]
