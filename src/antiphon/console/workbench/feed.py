"""Tells the pages of one connection what happens on it.

A page gets a snapshot first, then each event. A page that reads too slowly gets another snapshot in place of
the events that it missed, so memory is bounded and nothing is shown that is no longer true.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

__all__ = ["Feed"]

_MAX_UNREAD_EVENTS = 1000
_MAX_UNREAD_BYTES = 32 * 1024 * 1024
_BATCH_SECONDS = 0.03
"""How long events are collected before a page gets them together."""


class _Listener:
    __slots__ = ("events", "is_behind", "news", "unread_bytes")

    def __init__(self) -> None:
        self.events: deque[tuple[str, Any]] = deque()
        self.unread_bytes = 0
        self.is_behind = True  # a page begins with a snapshot
        self.news = asyncio.Event()
        self.news.set()


class Feed:
    """The pages that show one connection. `snapshot` returns everything that a page needs to begin."""

    def __init__(self, snapshot: Callable[[], Any]) -> None:
        self._snapshot = snapshot
        self._listeners: set[_Listener] = set()
        self._closed = False

    @property
    def has_listeners(self) -> bool:
        """Whether a page is open."""
        return bool(self._listeners)

    def publish(self, event: str, data: Any, *, size: int = 0) -> None:
        """Tell all pages about an event. `size` is the number of bytes of its data, if that matters."""
        for listener in self._listeners:
            listener.unread_bytes += size
            if len(listener.events) >= _MAX_UNREAD_EVENTS or listener.unread_bytes > _MAX_UNREAD_BYTES:
                listener.events.clear()
                listener.is_behind = True
            if not listener.is_behind:
                listener.events.append((event, data))
            listener.news.set()

    def resynchronize(self) -> None:
        """Send all pages a new snapshot."""
        for listener in self._listeners:
            listener.events.clear()
            listener.is_behind = True
            listener.news.set()

    def close(self) -> None:
        """End the streams of all pages."""
        self._closed = True
        for listener in self._listeners:
            listener.news.set()

    async def listen(self) -> AsyncIterator[tuple[str, Any]]:
        """Yield a snapshot and then events; messages that come together are one event."""
        listener = _Listener()
        self._listeners.add(listener)
        try:
            while True:
                await listener.news.wait()
                if self._closed:
                    yield "closed", {}
                    return
                if not listener.is_behind:
                    await asyncio.sleep(_BATCH_SECONDS)
                listener.news.clear()
                listener.unread_bytes = 0
                if listener.is_behind:
                    listener.is_behind = False
                    yield "snapshot", self._snapshot()
                    continue
                for event in _joined(listener):
                    yield event
        finally:
            self._listeners.discard(listener)


def _joined(listener: _Listener) -> list[tuple[str, Any]]:
    """Return the events so far; neighbouring messages are joined to one event."""
    joined: list[tuple[str, Any]] = []
    while listener.events:
        name, data = listener.events.popleft()
        if name == "message":
            if joined and joined[-1][0] == "messages":
                joined[-1][1].append(data)
                continue
            name, data = "messages", [data]
        joined.append((name, data))
    return joined
