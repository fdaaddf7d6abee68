"""The names of sessions that have ended, until their ids would have expired.

Owns the bound on that record, and the share of it of those who end sessions. If one of them ends more than it
may record, its records that expire first are removed, and from then on every session of its own that expires
as early counts as ended. So an ended session does not come back, and sessions of others are not concerned.
If more callers than that have ended a session, the first ones are forgotten, but not by the store.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from antiphon import wall_clock
from antiphon.runtime.budget import share_of

__all__ = ["EndedSessions"]

_MIN_EXPIRING = 1024
"""How many entries may be out of date before they are looked for."""


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
        self.records: dict[str, _Record] = {}
        """What the callers with each share have ended. No record is empty."""
        self.expiring: list[tuple[int, str]] = []
        """When something of each share expires first, or earlier. Some shares have no record any more."""

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, expires: int, share: str) -> None:
        """Record that a caller has ended a session, whose id is valid until `expires`."""
        now = int(wall_clock.now() * 1000)
        self._remove_expired(now)
        if name in self._names or expires <= now:
            return
        record = self.records.get(share)
        if record is None:
            record = self.records[share] = _Record()
        if not record.by_expiry or expires < record.by_expiry[0][0]:
            heappush(self.expiring, (expires, share))
        self._names.add(name)
        heappush(record.by_expiry, (expires, name))
        if share and len(record.by_expiry) > self._limit_of_share:
            record.ended_up_to = self._remove_first(record)
        if len(self._names) > self._limit:
            self._remove_from_largest()

    def contains(self, name: str, expires: int, share: str) -> bool:
        """Return whether a session of a caller has ended, or has to be taken for one that has."""
        if name in self._names:
            return True
        record = self.records.get(share)
        return record is not None and expires <= record.ended_up_to

    def _remove_expired(self, now: int) -> None:
        """Remove the records of all callers that have expired, so that they take the room of nobody."""
        while self.expiring and self.expiring[0][0] <= now:
            _, share = heappop(self.expiring)
            record = self.records.get(share)
            if record is None:
                continue
            while record.by_expiry and record.by_expiry[0][0] <= now:
                self._remove_first(record)
            if record.by_expiry:
                heappush(self.expiring, (record.by_expiry[0][0], share))
            else:
                del self.records[share]
        if len(self.expiring) > _MIN_EXPIRING + 2 * len(self.records):
            self.expiring = [(record.by_expiry[0][0], share) for share, record in self.records.items()]
            heapify(self.expiring)

    def _remove_from_largest(self) -> None:
        share, record = max(self.records.items(), key=lambda item: len(item[1].by_expiry))
        record.ended_up_to = self._remove_first(record)
        if not record.by_expiry:
            del self.records[share]

    def _remove_first(self, record: _Record) -> int:
        """Remove what expires first, and return when that is."""
        expires, name = heappop(record.by_expiry)
        self._names.discard(name)
        return expires
