"""The time of the event loop, which a test moves ahead, or stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from tests.support.polling import turns, until

MOST_TURNS = 1_000_000
"""How many turns of the loop something may take that needs no time."""


class LoopTime:
    """The time of the running event loop: its timers, and `loop.time()`. It goes on as usual unless moved.

    A test gives what must not end a long deadline, and moves the time past it once it may: then neither a
    slow machine nor a fast one makes a difference. Waits with a deadline that are under way end as well.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead = 0.0
        self._stopped_at: float | None = None
        vars(loop)["time"] = self._now

    @classmethod
    def here(cls) -> Self:
        """Return the time of the running event loop."""
        loop = asyncio.get_running_loop()
        found = getattr(loop.time, "__self__", None)
        return found if isinstance(found, cls) else cls(loop)

    def _now(self) -> float:
        return (self._real() if self._stopped_at is None else self._stopped_at) + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the time ahead. What is due then is done from the next turn of the loop on."""
        self._ahead += seconds

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the time stand still: it only moves by `advance`, so nothing that polls goes on."""
        self._stopped_at = self._real()
        try:
            yield
        finally:
            self._ahead += self._stopped_at - self._real()
            self._stopped_at = None

    async def let(self, happened: Callable[[], object]) -> None:
        """Let the loop go on until something has happened, also while the time stands still."""
        for _ in range(MOST_TURNS):
            if happened():
                return
            await turns()
        raise AssertionError(f"not within {MOST_TURNS} turns of the loop: {happened}")

    async def advance_until(self, happened: Callable[[], object], seconds: float) -> None:
        """Move the time ahead by so much, again and again, until something has happened."""

        def has_happened() -> bool:
            if not happened():
                self.advance(seconds)
                return False
            return True

        await until(has_happened)
