"""How much a store shares: commits, and the operations in them. Written by one thread, read by any."""

from __future__ import annotations

__all__ = ["CommitStats"]

_BUCKETS = 11


class CommitStats:
    """What one store has committed since it was made."""

    __slots__ = ("_sizes", "commits", "operations")

    def __init__(self) -> None:
        self.commits = 0
        """How many transactions there were."""
        self.operations = 0
        """How many operations were in them."""
        self._sizes = [0] * _BUCKETS

    def add(self, operations: int) -> None:
        """A transaction with so many operations was committed."""
        self.commits += 1
        self.operations += operations
        self._sizes[min((operations - 1).bit_length(), _BUCKETS - 1)] += 1

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """For powers of two, how many transactions had no more operations than that."""
        reached, found = 0, []
        for place, count in enumerate(self._sizes):
            reached += count
            found.append((2**place, reached))
        return found
