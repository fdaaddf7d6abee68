"""Counts commits and the operations in them. One thread writes the counters; any thread may read them."""

from __future__ import annotations

__all__ = ["CommitStats"]

_BUCKETS = 11
"""Buckets of the histogram, one for each power of two: the last one, 1024, exceeds the largest batch."""


class CommitStats:
    """The number of commits and operations of one store since it was created."""

    __slots__ = ("_sizes", "commits", "operations")

    def __init__(self) -> None:
        self.commits = 0
        """The number of committed transactions."""
        self.operations = 0
        """The number of operations in them."""
        self._sizes = [0] * _BUCKETS

    def add(self, operations: int) -> None:
        """Count one committed transaction with this many operations."""
        self.commits += 1
        self.operations += operations
        self._sizes[min((operations - 1).bit_length(), _BUCKETS - 1)] += 1

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """For each power of two, the number of transactions with at most that many operations."""
        total, buckets = 0, []
        for exponent, count in enumerate(self._sizes):
            total += count
            buckets.append((2**exponent, total))
        return buckets
