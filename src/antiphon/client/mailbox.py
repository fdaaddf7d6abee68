"""A queue with one reader, which can also be woken, failed or closed. Putting an item in never waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Mailbox"]

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items for one reader, in order. Of more than `max_items` unread ones, the oldest are dropped."""

    def __init__(self, max_items: int | None = None) -> None:
        self.is_closed = False
        self._items: deque[T] = deque(maxlen=max_items)
        self._error: BaseException | None = None
        self._news = asyncio.Event()

    def put(self, items: Iterable[T]) -> None:
        """Add items."""
        self._items.extend(items)
        self._news.set()

    def wake(self) -> None:
        """Let the reader go on without an item."""
        self._news.set()

    def fail(self, error: BaseException) -> None:
        """Raise an error in the reader, now and from now on."""
        self._error = error
        self._news.set()

    def close(self) -> None:
        """Add no more items; the reader still gets those that are there."""
        self.is_closed = True
        self._news.set()

    async def next(self, timeout: float | None = None) -> T | None:
        """Return the next item; raises the error of `fail`.

        Returns `None` after `timeout` seconds, if the reader is woken, or if the mailbox is closed and empty.
        """
        if not self._items and self._error is None and not self.is_closed:
            await self._wait(timeout)
        if self._error is not None:
            raise self._error
        self._news.clear()
        return self._items.popleft() if self._items else None

    async def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            await self._news.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()
