"""Growing delays between retries. Owns the arithmetic, and knows nothing of what is retried.

A loop on a thread asks for `next_delay()` and sleeps by itself. A coroutine calls `wait(error)`.
"""

from __future__ import annotations

import asyncio
import random
import time

__all__ = ["Backoff"]


class Backoff:
    """Delays that grow from `first` to `longest` seconds, each `factor` times the one before.

    `jitter` spreads each delay at random by that share of it, so 0.5 gives half to one and a half times
    the delay. With a `timeout`, `wait` gives up that many seconds after the first failure.
    """

    __slots__ = ("_deadline", "_factor", "_first", "_jitter", "_longest", "_timeout", "delay")

    def __init__(
        self,
        first: float = 0.05,
        longest: float = 1.0,
        *,
        factor: float = 2.0,
        jitter: float = 0.0,
        timeout: float | None = None,
    ) -> None:
        self._first = first
        self._longest = longest
        self._factor = factor
        self._jitter = jitter
        self._timeout = timeout
        self._deadline: float | None = None
        self.delay = first
        """The next delay in seconds, without jitter."""

    def next_delay(self) -> float:
        """Return the delay to wait now, in seconds, and let the following one grow."""
        delay, self.delay = self.delay, min(self.delay * self._factor, self._longest)
        if not self._jitter:
            return delay
        return delay * random.uniform(1 - self._jitter, 1 + self._jitter)  # nosec B311 # no secret

    def reset(self) -> None:
        """Start again with the first delay and a new timeout, after an attempt succeeded."""
        self.delay = self._first
        self._deadline = None

    async def wait(self, error: BaseException) -> None:
        """Sleep before the next attempt; raises `error` if the sleep would end after the timeout."""
        delay = self.next_delay()
        if self._timeout is not None:
            now = time.monotonic()
            if self._deadline is None:
                self._deadline = now + self._timeout
            if now + delay > self._deadline:
                raise error
        await asyncio.sleep(delay)
