"""Looks after everything that is under way: deadlines, and a tick for those that take long.

One timer serves all of them, so that a quick call pays for no timer of its own. Owns the set of
what is under way in one event loop.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from typing import Any, Literal, TypeAlias

__all__ = ["Stopped", "Supervised", "Supervisor"]

Stopped: TypeAlias = Literal["deadline", "cancelled", "disconnected", "shutdown"]

TICK = 0.1


class Supervised:
    """One task that is looked after."""

    task: asyncio.Task[Any] | None = None
    started: float = 0.0
    deadline: float = float("inf")
    stopped: Stopped | None = None

    def stop(self, reason: Stopped) -> None:
        """Cancel the task; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
            if self.task is not None:
                self.task.cancel()

    def absolve(self) -> None:
        """Take back the cancellation: whoever caught it will deal with it."""
        if self.task is not None:
            self.task.uncancel()

    def tick(self, now: float) -> None:
        """What to do now and then, while it takes long."""


class Supervisor:
    """All that is under way in one event loop."""

    def __init__(self) -> None:
        self._watched: set[Supervised] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._watched)

    def enter(self, watched: Supervised, loop: asyncio.AbstractEventLoop) -> None:
        """Look after something, in the current task, from now on."""
        watched.task = current_task(loop)
        watched.started = loop.time()
        self._watched.add(watched)
        if self._timer is None:
            self._timer = loop.call_later(TICK, self._tick, loop)

    def leave(self, watched: Supervised) -> None:
        """It is over."""
        self._watched.discard(watched)
        if self._empty is not None and not self._watched:
            self._empty.set()

    def stop(self, reason: Stopped) -> None:
        """Cancel everything that is under way."""
        for watched in tuple(self._watched):
            watched.stop(reason)

    def forget(self) -> None:
        """The event loop is gone, and with it whatever was under way in it."""
        self._watched.clear()
        self._timer = None

    async def drained(self, within: float) -> bool:
        """Wait until nothing is under way; false if that takes longer than `within` seconds."""
        if not self._watched:
            return True
        self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(within):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(TICK, self._tick, loop) if self._watched else None
        now = loop.time()
        for watched in tuple(self._watched):
            if now >= watched.deadline:
                watched.stop("deadline")
            else:
                watched.tick(now)
