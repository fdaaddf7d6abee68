"""The clock of leases in this process, which a test moves: a long lease ends, and no short one is lost."""

from __future__ import annotations

import time

from antiphon import wall_clock
from antiphon.store.contract import Store
from tests.support.polling import until


class LeaseTime:
    """Moves the clock by which the worker of this process, and its stores in memory and on SQLite, count.

    The tests of tasks and workers give leases of an hour, which a process without a processor does not lose,
    and let them end by `advance`. The worker renews a third of a lease later at its next tick, if its store
    has a `lease_keeper`; otherwise it does so by a timer of the event loop (see `LoopTime`). The database
    of PostgreSQL has a clock of its own: `PostgresStore(url, clock=lease_time)` moves along.
    """

    def __call__(self) -> float:
        """Return the time of day, in seconds since 1970, as it would be."""
        return time.time() + wall_clock.leases_ahead

    def advance(self, seconds: float) -> None:
        """Move the clock ahead."""
        wall_clock.leases_ahead += seconds

    async def let_renew(self, store: Store, lease: float) -> None:
        """Move the clock ahead by half of a lease, and wait until all leases in a store were renewed."""
        self.advance(lease / 2)

        async def are_renewed() -> bool:
            return all(each.left > 0.75 * lease for each in await store.leases())

        await until(are_renewed)
