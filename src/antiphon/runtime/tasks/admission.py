"""Decides whether a new task is accepted, from the number of tasks that wait for a worker or for an answer.

Owns the counts, which are estimates: they are read from the store at intervals, and before a task is refused.
"""

from __future__ import annotations

from antiphon.errors import Busy
from antiphon.runtime.budget import share_of
from antiphon.runtime.limits import Limits
from antiphon.store.contract import Phase, Store

__all__ = ["Admission"]

_RETRY_AFTER_SECONDS = 10
"""When a caller should try again after its task was refused because too many tasks wait."""
_COUNT_INTERVAL_TASKS = 100
"""How many tasks a process creates before it asks the store again how many wait."""
_PHASES: tuple[tuple[Phase, str], ...] = (("ready", "a worker"), ("waiting", "an answer"))


class Admission:
    """Counts the tasks that wait, and refuses further ones. `server` is the name of the tasks' server."""

    def __init__(self, store: Store, limits: Limits, *, server: str | None = None) -> None:
        self._store = store
        self._server = server
        self._most: dict[Phase, int] = {"ready": limits.max_queued_tasks, "waiting": limits.max_waiting_tasks}
        self._shares = {phase: share_of(most, limits.principal_share) for phase, most in self._most.items()}
        self._counts: dict[Phase, int] = {"ready": 0, "waiting": 0}
        self._by_principal: dict[tuple[str, Phase], int] = {}
        self._created = _COUNT_INTERVAL_TASKS  # since the last count
        self._count_after = self._room()  # how many tasks can be created before the next count

    async def check(self, principal_id: str) -> None:
        """Raise `Busy` if too many tasks wait, in all or of an authenticated principal."""
        if self._created >= self._count_after:
            await self._count_again()
        if principal_id:
            for phase, awaited in _PHASES:
                # Fewer tasks in all than the share of one principal: nobody has more than its share.
                if self._counts[phase] + self._created >= self._shares[phase]:
                    await self._check_share(principal_id, phase, awaited)
        self._created += 1

    async def _count_again(self) -> None:
        """Ask the store how many tasks wait; raises `Busy` if they are too many."""
        self._created = 0
        self._by_principal.clear()
        for phase, _ in _PHASES:
            self._counts[phase] = await self._count(phase)
        self._count_after = self._room()
        for phase, awaited in _PHASES:
            if self._counts[phase] >= self._most[phase]:
                raise Busy(
                    f"Too many tasks wait for {awaited}, {self._counts[phase]} of at most "
                    f"{self._most[phase]}: try again later.",
                    retry_after=_RETRY_AFTER_SECONDS,
                )

    def _room(self) -> int:
        """Return how many tasks can be created before the store has to be asked again how many wait."""
        room = min(self._most[phase] - count for phase, count in self._counts.items())
        return min(room, _COUNT_INTERVAL_TASKS)

    async def _count(self, phase: Phase) -> int:
        count = await self._store.count(phase)
        if self._server is not None and count >= self._most[phase]:
            # Only now without the tasks of other servers, because the store counts those of one by one.
            count = await self._store.count(phase, server=self._server)
        return count

    async def _check_share(self, principal_id: str, phase: Phase, awaited: str) -> None:
        most, key = self._shares[phase], (principal_id, phase)
        count = self._by_principal.get(key)
        if count is None or count >= most:
            count = await self._store.count_of_principal(principal_id, phase, most=most)
            if count >= most:
                raise Busy(
                    f"You have {count} of at most {most} tasks that wait for {awaited}: try again later.",
                    retry_after=_RETRY_AFTER_SECONDS,
                )
        self._by_principal[key] = count + 1
