"""Renews leases on a connection of its own, for a thread that runs while the event loop is blocked.

Shares the rules and the statements of the store's writer, but neither its thread nor its queue. It does not
know the event loop.
"""

from __future__ import annotations

from collections.abc import Collection

from antiphon.store import rules
from antiphon.store.commit_stats import CommitStats
from antiphon.store.sqlite.batch import Operation
from antiphon.store.sqlite.clock import StoreClock
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.writer import Writer

__all__ = ["SQLiteLeaseKeeper"]


class SQLiteLeaseKeeper:
    """A connection that renews leases."""

    def __init__(self, database: Database, clock: StoreClock) -> None:
        self._writer = Writer(database, clock, CommitStats())

    def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        """Block until the leases are extended; raises `StoreUnavailable`."""
        pairs, length = tuple(claims), rules.lease_milliseconds(lease)
        operation = Operation(lambda batch: batch.renew(pairs, length), tuple(id for id, _ in pairs))
        ((held, error),) = self._writer.run([operation]).results
        if error is not None:
            raise error
        renewed: set[str] = held
        return renewed

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
