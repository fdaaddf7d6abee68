"""The clock of leases in this process, which a test moves: a long lease ends, and no short one is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from antiphon import wall_clock
from tests.support.polling import until

if TYPE_CHECKING:
    from antiphon.store.contract import Store


class LeaseTime:
    """Moves the clock by which the worker of this process, and its stores in memory and on SQLite, count.

    The tests of tasks and workers give leases of an hour, which a process without a processor does not lose,
    and let them end by `advance`. The worker renews a third of a lease later at its next tick, if its store
    has a `lease_keeper`; otherwise it does so by a timer of the event loop (see `LoopTime`). The database
    of PostgreSQL has a clock of its own, so a test passes `store(url)` to its servers.
    """

    def store(self, url: str) -> str | Store:
        """Return what to pass to a server: for PostgreSQL, a store whose only clock moves as well.

        The times in its records move, too: a task that has ended is deleted after its lifetime.
        """
        if not url.startswith("postgres"):
            return url
        from antiphon.store.postgres.store import PostgresStore  # only some tests have PostgreSQL

        return PostgresStore(url, clock=lambda: time.time() + wall_clock.leases_ahead)

    def advance(self, seconds: float) -> None:
        """Move the clock ahead."""
        wall_clock.leases_ahead += seconds

    async def let_renew(self, store: Store, lease: float) -> None:
        """Move the clock ahead by half of a lease, and wait until all leases in a store were renewed."""
        self.advance(lease / 2)

        async def are_renewed() -> bool:
            return all(each.left > 0.75 * lease for each in await store.leases())

        await until(are_renewed)
