"""A buffer of the events of one stream, so that a client can resume the stream after a disconnect.

Owns the numbered events of one stream. The buffer is bounded: it evicts the oldest events first, and a
client that needs an evicted event gets an error. The events of all streams share the memory budget of the
process: an event for which it has no room is not kept.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator

from antiphon.runtime.budget import Account
from antiphon.runtime.limits import Limits
from antiphon.wire import sse

__all__ = ["EventBuffer"]

_RECONNECT_MILLISECONDS = 1000
"""How long a client should wait before it reconnects."""


_EVENT_BYTES = 128
"""The memory of an event beside its text, about."""


class EventBuffer:
    """The events of one stream, by number. Their memory is reserved on an account."""

    def __init__(self, limits: Limits, account: Account) -> None:
        self.id = secrets.token_urlsafe(9)
        self._limits = limits
        self._account = account
        self.events: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._last = 0
        self._ended = False
        self._evicted = False
        self._changed = asyncio.Event()
        self.resumptions = 0
        """How often a client has resumed the stream. Only the latest connection gets events."""

    def opening_event(self) -> bytes:
        """Return the first event of the stream. It has no data, only an id to resume with."""
        return sse.event(b"", id=f"{self.id}.0", retry=_RECONNECT_MILLISECONDS)

    def add(self, data: bytes, *, last: bool = False) -> bytes:
        """Add a message to the buffer, and return its event."""
        self._last += 1
        event = sse.event(data, id=f"{self.id}.{self._last}")
        self._keep(event)
        if last:
            self._ended = True
        self._changed.set()
        return event

    def evict(self) -> None:
        """Remove all events, and keep no further ones: the stream can no longer be resumed."""
        self._evicted = True
        self._clear()
        self._changed.set()

    def end(self) -> None:
        """Mark the stream as complete."""
        self._ended = True
        self._changed.set()

    @property
    def ended(self) -> bool:
        """Whether the stream is complete."""
        return self._ended

    def can_resume(self, after: int) -> bool:
        """Return whether all events numbered above `after` are in the buffer."""
        first = self.events[0][0] if self.events else self._last + 1
        return first - 1 <= after <= self._last

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events numbered above `after`, and then new events until the stream ends.

        Stops when another connection resumes the stream, or when the next event was evicted.
        """
        self.resumptions += 1
        resumption = self.resumptions
        while resumption == self.resumptions:
            self._changed.clear()
            for number, event in tuple(self.events):
                if number > after + 1:
                    return
                if number > after:
                    after = number
                    yield event
            if (self._ended and after >= self._last) or not self.can_resume(after):
                return
            await self._changed.wait()

    def _keep(self, event: bytes) -> None:
        """Keep an event, and evict the oldest ones; evict all of them if there is no memory for it."""
        if self._evicted:
            return
        while self.events and (
            len(self.events) >= self._limits.max_replay_events
            or self._size + len(event) > self._limits.max_replay_bytes
        ):
            self._drop_oldest()
        size = len(event) + _EVENT_BYTES
        if not self._account.try_reserve(size):
            self._clear()
            if not self._account.try_reserve(size):
                return
        self.events.append((self._last, event))
        self._size += len(event)

    def _clear(self) -> None:
        while self.events:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        size = len(self.events.popleft()[1])
        self._size -= size
        self._account.release(size + _EVENT_BYTES)
