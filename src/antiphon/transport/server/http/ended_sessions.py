"""The names of sessions that have ended, until their ids would have expired.

Owns the bound on that record, and the share of it of those who end sessions. If one of them ends more than it
may record, its records that expire first are removed, and from then on every session of its own that expires
as early counts as ended. So an ended session never comes back, and sessions of others are not concerned.
"""

from __future__ import annotations

from heapq import heappop, heappush

from antiphon import wall_clock
from antiphon.runtime.budget import share_of

__all__ = ["EndedSessions"]


class _Record:
    """The sessions that the callers with one share have ended."""

    __slots__ = ("by_expiry", "ended_up_to")

    def __init__(self) -> None:
        self.by_expiry: list[tuple[int, str]] = []
        self.ended_up_to = 0


class EndedSessions:
    """The sessions that have ended. Times are in milliseconds since 1970."""

    def __init__(self, limit: int, share: float) -> None:
        self._limit = limit
        self._limit_of_share = share_of(limit, share)
        self._names: set[str] = set()
        self._records: dict[str, _Record] = {}
        """What the callers with each share have ended. No record is empty."""
        self._ended_up_to = 0
        """Which sessions of everybody count as ended: more callers have ended one than can be recorded."""

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, expires: int, share: str) -> None:
        """Record that a caller has ended a session, whose id is valid until `expires`."""
        now = int(wall_clock.now() * 1000)
        record = self._records.get(share)
        while record is not None and record.by_expiry and record.by_expiry[0][0] <= now:
            self._remove_first(record)
        if name in self._names or expires <= now:
            if record is not None and not record.by_expiry:
                del self._records[share]
            return
        if record is None:
            record = self._records[share] = _Record()
        self._names.add(name)
        heappush(record.by_expiry, (expires, name))
        if share and len(record.by_expiry) > self._limit_of_share:
            record.ended_up_to = self._remove_first(record)
        if len(self._names) > self._limit:
            self._remove_from_largest()

    def contains(self, name: str, expires: int, share: str) -> bool:
        """Return whether a session of a caller has ended, or has to be taken for one that has."""
        if name in self._names or expires <= self._ended_up_to:
            return True
        record = self._records.get(share)
        return record is not None and expires <= record.ended_up_to

    def _remove_from_largest(self) -> None:
        share, record = max(self._records.items(), key=lambda item: len(item[1].by_expiry))
        record.ended_up_to = self._remove_first(record)
        if not record.by_expiry:
            self._ended_up_to = max(self._ended_up_to, record.ended_up_to)
            del self._records[share]

    def _remove_first(self, record: _Record) -> int:
        """Remove what expires first, and return when that is."""
        expires, name = heappop(record.by_expiry)
        self._names.discard(name)
        return expires
