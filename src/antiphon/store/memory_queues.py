"""The tasks of a store in memory, and the orders in which they are claimed and expire.

The store owns the tasks and changes them; a queue notices an outdated item when it reaches the front.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from antiphon.store import rules
from antiphon.store.rules import Row

__all__ = ["ExpiryQueue", "ReadyQueue", "StoredTask"]


class StoredTask(msgspec.Struct):
    """A task's row, and its entries as kind, time and JSON text."""

    row: Row
    log: list[tuple[str, int, str]]


class ReadyQueue:
    """The tasks of one tool of a server that may be claimable, in the order of their turns.

    A task that is no longer claimable, or has another turn by now, is removed when it reaches the front.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._turns: dict[int, int] = {}  # by key

    def put(self, row: Row) -> None:
        turn, key = rules.queue_position(row)
        if self._turns.get(key) != turn:
            self._turns[key] = turn
            heappush(self._heap, (turn, key))

    def first(self, tasks: dict[int, StoredTask]) -> tuple[int, int] | None:
        while self._heap:
            turn, key = self._heap[0]
            task = tasks.get(key)
            if task is not None and rules.is_claimable(task.row) and self._turns.get(key) == turn:
                return turn, key
            self.pop()
        return None

    def count(self, tasks: dict[int, StoredTask]) -> int:
        """Return the number of tasks that are claimable."""
        return sum(key in tasks and rules.is_claimable(tasks[key].row) for key in self._turns)

    def pop(self) -> None:
        turn, key = heappop(self._heap)
        if self._turns.get(key) == turn:
            del self._turns[key]


class ExpiryQueue:
    """The tasks that have a time of expiry, earliest first.

    An item whose task has another time by now, or has left this queue, is removed when it reaches the front.
    """

    def __init__(self, accept: Callable[[Row], bool]) -> None:
        self._accept = accept
        self._heap: list[tuple[int, int]] = []
        self._members: set[tuple[int, int]] = set()

    def put(self, row: Row) -> None:
        if row.expires is None or not self._accept(row):
            return
        item = (row.expires, row.key)
        if item not in self._members:
            self._members.add(item)
            heappush(self._heap, item)

    def take(self, tasks: dict[int, StoredTask], now: int, limit: int) -> list[Row]:
        """Remove and return up to `limit` tasks whose time has passed."""
        rows: list[Row] = []
        while self._heap and self._heap[0][0] <= now and len(rows) < limit:
            item = heappop(self._heap)
            self._members.discard(item)
            task = tasks.get(item[1])
            if task is not None and task.row.expires == item[0] and self._accept(task.row):
                rows.append(task.row)
        return rows

    def due(self, tasks: dict[int, StoredTask], now: int, limit: int) -> list[Row]:
        """Return up to `limit` tasks whose time has passed, and keep them in the queue."""
        rows = self.take(tasks, now, limit)
        for row in rows:
            self.put(row)
        return rows
