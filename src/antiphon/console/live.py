"""Tells the pages that something has changed. A page then fetches what it shows again.

Owns the streams of this process. Changes that come together are sent together, and a slow page loses none,
because a change says only which topic it concerns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

__all__ = ["Live", "Watcher"]

logger = logging.getLogger("antiphon")

Watcher: TypeAlias = Callable[[], AsyncIterator[Any]]
"""Returns an iterator that yields something after each change of a topic."""

_COALESCE_SECONDS = 0.25
"""How long changes are collected before a page hears of them."""
_RETRY_SECONDS = 2.0
"""How long to wait before a watcher that failed is started again."""


class Live:
    """The changes that pages hear of, by topic: `inbox`, `tasks`, `workers`."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}
        self._listeners: set[_Listener] = set()
        self._running: list[asyncio.Task[None]] = []
        self._closed = False

    def watch(self, topic: str, watcher: Watcher) -> None:
        """Report a change of the topic for each item of a watcher. It runs while any page listens."""
        self._watchers.setdefault(topic, []).append(watcher)
        if self._running:
            self._running.append(asyncio.create_task(self._follow(topic, watcher)))

    def changed(self, topic: str) -> None:
        """Tell all pages that a topic has changed."""
        for listener in self._listeners:
            listener.topics.add(topic)
            listener.news.set()

    async def listen(self) -> AsyncIterator[tuple[str, Any]]:
        """Yield `ready`, then the event `changed` with its topics, until the console closes."""
        listener = _Listener()
        self._listeners.add(listener)
        try:
            if not self._running:
                self._start()
            yield "ready", {}
            while not self._closed:
                await listener.news.wait()
                await asyncio.sleep(_COALESCE_SECONDS)
                listener.news.clear()
                topics, listener.topics = listener.topics, set()
                if topics:
                    yield "changed", {"topics": sorted(topics)}
        finally:
            self._listeners.discard(listener)
            if not self._listeners:
                self._stop()

    def reopen(self) -> None:
        """Accept listeners again, when the console starts again."""
        self._closed = False

    def close(self) -> None:
        """End all streams, and forget the watchers."""
        self._closed = True
        self._stop()
        self._watchers.clear()
        for listener in self._listeners:
            listener.news.set()

    def _start(self) -> None:
        self._running = [
            asyncio.create_task(self._follow(topic, watcher))
            for topic, watchers in self._watchers.items()
            for watcher in watchers
        ]

    def _stop(self) -> None:
        for task in self._running:
            task.cancel()
        self._running = []

    async def _follow(self, topic: str, watcher: Watcher) -> None:
        while True:
            try:
                async with contextlib.aclosing(watcher()) as changes:  # type: ignore[type-var]
                    async for _ in changes:
                        self.changed(topic)
            except Exception as error:
                logger.warning("The console cannot watch %s, and tries again: %s", topic, error)
            self.changed(topic)  # something may have changed meanwhile
            await asyncio.sleep(_RETRY_SECONDS)


class _Listener:
    """The topics that one page has not heard of."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.news = asyncio.Event()
