"""Supervises the calls that are under way: enforces deadlines, and ticks for calls that take long.

One timer serves all calls, so that a quick call pays for no timer of its own. Owns the set of calls that are
under way in one event loop.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import current_task
from typing import Any, Literal, TypeAlias

__all__ = ["TICK_SECONDS", "StopReason", "Supervised", "Supervisor"]

StopReason: TypeAlias = Literal["deadline", "cancelled", "disconnected", "unread", "shutdown"]

TICK_SECONDS = 0.1
"""How often deadlines are checked."""


class Supervised:
    """One asyncio task with a deadline; a transport may subclass it to act on ticks."""

    task: asyncio.Task[Any] | None = None
    started: float = 0.0
    deadline: float = float("inf")
    stop_reason: StopReason | None = None
    _pauses: int = 0
    _paused_at: float = 0.0
    _paused_deadline: float = 0.0

    @classmethod
    def here(cls) -> Supervised:
        """Wrap the current asyncio task, without a supervisor and without a deadline."""
        work = cls()
        work.task = current_task()
        work.started = asyncio.get_running_loop().time()
        return work

    def stop(self, reason: StopReason) -> None:
        """Cancel the task; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            if self.task is not None:
                self.task.cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the task, and not the function that runs in it."""
        return self.stop_reason is not None or (self.task is not None and self.task.cancelling() > 0)

    @property
    def is_current(self) -> bool:
        """Whether the task is the one that runs at this moment."""
        try:
            return self.task is not None and current_task() is self.task
        except RuntimeError:  # no event loop runs
            return False

    def pause_deadline(self, now: float, longest: float) -> None:
        """Stop counting time towards the deadline, for `longest` seconds at most: a person is asked."""
        if self._pauses == 0:
            self._paused_at, self._paused_deadline = now, self.deadline
        self._pauses += 1
        self.deadline = max(self.deadline, now + longest)

    def resume_deadline(self, now: float) -> None:
        """Count time again, once every pause has ended: the deadline moves by the time that passed."""
        self._pauses -= 1
        if self._pauses == 0:
            self.deadline = self._paused_deadline + (now - self._paused_at)

    def uncancel(self) -> None:
        """Take back the cancellation: the code that caught it handles it."""
        if self.task is not None:
            self.task.uncancel()

    def tick(self, now: float) -> None:
        """Act on a tick: called every `TICK_SECONDS` while the task runs."""


class Supervisor:
    """The supervised tasks of one event loop."""

    def __init__(self) -> None:
        self.watched: set[Supervised] = set()
        """What runs now."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs the next tick."""
        self._empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self.watched)

    @property
    def ticks(self) -> bool:
        """Whether a timer runs, which looks at the tasks."""
        return self._timer is not None

    def enter(self, watched: Supervised, loop: asyncio.AbstractEventLoop) -> None:
        """Supervise the current asyncio task from now on. It may have been stopped before it began."""
        if watched.task is None:
            watched.task = current_task(loop)
            if watched.stop_reason is not None and watched.task is not None:
                watched.task.cancel()
        watched.started = loop.time()
        self.watched.add(watched)
        if self._timer is None:
            self._timer = loop.call_later(TICK_SECONDS, self._tick, loop)

    def leave(self, watched: Supervised) -> None:
        """Stop supervising: the task is done."""
        self.watched.discard(watched)
        if self._empty is not None and not self.watched:
            self._empty.set()

    def stop(self, reason: StopReason) -> None:
        """Cancel every supervised task."""
        for watched in tuple(self.watched):
            watched.stop(reason)

    def forget(self) -> None:
        """Forget all tasks: their event loop is closed."""
        self.watched.clear()
        self._timer = None

    async def drained(self, within: float) -> bool:
        """Wait until no task is left; return false if that takes longer than `within` seconds."""
        if not self.watched:
            return True
        self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(within):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the tasks whose deadline had passed when this tick was due.

        A tick that comes late follows a time in which the process stood still. What arrived meanwhile is read
        before the next tick.
        """
        due = math.inf if self._timer is None else self._timer.when()
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop) if self.watched else None
        now = loop.time()
        for watched in tuple(self.watched):
            if min(now, due) >= watched.deadline:
                watched.stop("deadline")
            else:
                watched.tick(now)
