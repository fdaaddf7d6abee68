"""What the run of a claimed task needs to wait: the time, and the events of its server."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.records import event_tag
from antiphon.store.contract import Event

__all__ = ["TaskParking"]


class TaskParking:
    """Waits on behalf of a claimed task."""

    __slots__ = ("_claimed",)

    def __init__(self, claimed: ClaimedTask) -> None:
        self._claimed = claimed

    def now(self) -> int:
        """Return the time in milliseconds since 1970, by the clock of the store."""
        return self._claimed.now()

    def has_read_until(self, time: int) -> bool:
        """Return whether the run knows all answers that were written before a time."""
        return self._claimed.last_entry_at >= time

    async def events(self, name: str, key: str, *, after: int) -> Sequence[Event]:
        """Return the next event of a name and key, numbered above `after`; raises `StoreUnavailable`."""
        return await self._claimed.read_events(event_tag(self._claimed.server, name, key), after=after)
