"""Decides when a run that waits is stopped: when nothing of the run goes on beside the wait any more.

Owns the count of what is under way, such as steps and writes, and the futures at which branches of the run
wait. It must not know what they wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["HANDOVER_TURNS", "Activity"]

HANDOVER_TURNS = 10
"""How many turns a run waits after a step, a write or a pause: a function may hand the result from one
asyncio task to the next before it goes on."""


class Activity:
    """What goes on in a run. The run is not stopped while a `with activity:` block is under way."""

    __slots__ = ("_handle", "_stop", "_turns", "_waiting", "under_way")

    def __init__(self) -> None:
        # Only while something waits, so that a run that waits for nothing is no reference cycle.
        self._stop: Callable[[], None] | None = None
        self._waiting: set[asyncio.Future[None]] | None = None
        self._handle: asyncio.Handle | None = None
        self._turns = 0
        self.under_way = 0
        """How many steps, writes and short pauses of the run have not ended."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and no branch waits to be stopped."""
        return self.under_way == 0 and not self._waiting

    def __enter__(self) -> None:
        self.under_way += 1

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Note that something is not under way any more. The branches that wait may be the only ones left."""
        self.under_way -= 1
        if self._waiting:
            self._stop_after(HANDOVER_TURNS)

    async def wait(self, turns: int, stop: Callable[[], None]) -> None:
        """Wait to be cancelled: `stop` is called after some turns of the event loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = set()
        self._waiting.add(future)
        self._stop = stop
        self._stop_after(turns)
        try:
            await future
        finally:  # if the function itself has cancelled this branch, the run goes on without it
            self._waiting.discard(future)
            if not self._waiting:
                self._stop = None

    def cancel(self) -> None:
        """Cancel the branches that wait."""
        for future in self._waiting or ():
            future.cancel()

    def _stop_after(self, turns: int) -> None:
        self._turns = max(self._turns, turns)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if self._turns > 0:
            self._turns -= 1
            self._handle = asyncio.get_running_loop().call_soon(self._turn)
            return
        self._handle = None
        if self._stop is not None and self.under_way == 0:
            self._stop()
