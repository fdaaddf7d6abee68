"""The names of sessions that have ended, until their ids would have expired.

Owns the bound on that record. If more sessions end than the record holds, the ones that expire first are
removed from it, and every session that expires as early counts as ended from then on. So an ended session
never comes back, however many others are ended.
"""

from __future__ import annotations

from heapq import heappop, heappush

from antiphon import wall_clock

__all__ = ["EndedSessions"]


class EndedSessions:
    """The sessions that have ended. Times are in milliseconds since 1970."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self._by_expiry: list[tuple[int, str]] = []
        self._ended_up_to = 0

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, expires: int) -> None:
        """Record that a session has ended, whose id is valid until `expires`."""
        now = int(wall_clock.now() * 1000)
        while self._by_expiry and self._by_expiry[0][0] <= now:
            self._names.discard(heappop(self._by_expiry)[1])
        if name in self._names or expires <= now:
            return
        self._names.add(name)
        heappush(self._by_expiry, (expires, name))
        while len(self._by_expiry) > self._limit:
            self._ended_up_to, oldest = heappop(self._by_expiry)
            self._names.discard(oldest)

    def contains(self, name: str, expires: int) -> bool:
        """Return whether a session has ended, or has to be taken for one that has."""
        return name in self._names or expires <= self._ended_up_to
