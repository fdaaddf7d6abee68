"""Streams that a caller can take up again after its connection broke: what was sent, by number.

Owns the events of one stream. Bounded: the oldest go first, and a caller who needs those is told so.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator

from antiphon.runtime.limits import Limits
from antiphon.wire import sse

__all__ = ["RETRY_MS", "EventBuffer"]

RETRY_MS = 1000
"""How long a caller whose connection was let go is asked to wait before it comes back."""


class EventBuffer:
    """The events of one stream."""

    def __init__(self, limits: Limits) -> None:
        self.id = secrets.token_urlsafe(9)
        self._limits = limits
        self._events: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._last = 0
        self._ended = False
        self._news = asyncio.Event()
        self.taken_up = 0
        """How often a caller came back for it; whoever came before is no longer served."""

    def prime(self) -> bytes:
        """The first event: no data, but an id to come back with."""
        return sse.event(b"", id=f"{self.id}.0", retry=RETRY_MS)

    def add(self, data: bytes, *, last: bool = False) -> bytes:
        """Number and keep a message; returns its event."""
        self._last += 1
        event = sse.event(data, id=f"{self.id}.{self._last}")
        self._events.append((self._last, event))
        self._size += len(event)
        while len(self._events) > 1 and (
            len(self._events) > self._limits.max_replay_events or self._size > self._limits.max_replay_bytes
        ):
            self._size -= len(self._events.popleft()[1])
        if last:
            self._ended = True
        self._news.set()
        return event

    def end(self) -> None:
        """No more messages will come."""
        self._ended = True
        self._news.set()

    @property
    def ended(self) -> bool:
        """Whether all its messages are there."""
        return self._ended

    def has(self, after: int) -> bool:
        """Whether everything after a number is still there."""
        first = self._events[0][0] if self._events else self._last + 1
        return first - 1 <= after <= self._last

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """The events after a number: those that are there, then those that come."""
        self.taken_up += 1
        turn = self.taken_up
        while turn == self.taken_up:
            self._news.clear()
            for number, event in tuple(self._events):
                if number > after:
                    after = number
                    yield event
            if self._ended and after >= self._last:
                return
            await self._news.wait()
