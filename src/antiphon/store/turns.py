"""Assigns turns to the queued tasks of a store in memory, so that claims go round the principals.

Owns the claimable tasks of each principal that have a turn. `rules.next_turn` has the rule. The
other stores keep turns in their tables. This module does not know where rows are kept.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from antiphon.store import rules
from antiphon.store.rules import Row

__all__ = ["Turns"]

_MIN_COMPACTED_ITEMS = 64
"""How many items a heap has before outdated ones are removed."""


class Turns:
    """The turns of the tasks that wait for a worker."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}  # by server
        self.queues: dict[tuple[str, str], _PrincipalQueue] = {}  # by server and principal

    def assign(self, row: Row, since: int) -> None:
        """Assign a turn to a task that has to wait behind the others of its principal (see `next_turn`)."""
        queue = self.queues.get((row.server, row.principal))
        last = 0 if queue is None else queue.last_turn()
        row.turn = rules.next_turn(since, max(last, self._reached.get(row.server, 0)))

    def put(self, row: Row) -> None:
        """Add a claimable task, if it has a turn."""
        if row.turn is not None:
            self.queues.setdefault((row.server, row.principal), _PrincipalQueue()).put(row)

    def note_claim(self, row: Row) -> None:
        """Note that a worker claims a task."""
        if row.turn is not None:
            self._reached[row.server] = max(row.turn, self._reached.get(row.server, 0))
        self.remove(row)

    def remove(self, row: Row) -> None:
        """Remove a task that is not claimable, if it was."""
        if row.turn is None:
            return
        name = row.server, row.principal
        queue = self.queues.get(name)
        if queue is not None and queue.remove(row):
            del self.queues[name]


class _PrincipalQueue:
    """The tasks of one principal, for the largest of their turns. Removed tasks leave the heap later."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int]] = []  # negative turns, and keys
        self.members: set[int] = set()

    def put(self, row: Row) -> None:
        if row.key not in self.members:
            self.members.add(row.key)
            turn, key = rules.queue_position(row)
            heappush(self.heap, (-turn, key))

    def remove(self, row: Row) -> bool:
        """Remove a task; return true if no task is left."""
        self.members.discard(row.key)
        if len(self.heap) > max(_MIN_COMPACTED_ITEMS, 2 * len(self.members)):
            self.heap = [item for item in self.heap if item[1] in self.members]
            heapify(self.heap)
        return not self.members

    def last_turn(self) -> int:
        while self.heap[0][1] not in self.members:
            heappop(self.heap)
        return -self.heap[0][0]
