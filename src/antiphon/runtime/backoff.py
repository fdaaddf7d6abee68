"""Waiting for a store that is away: a little longer each time, and not for ever."""

from __future__ import annotations

import asyncio
import time

from antiphon.errors import StoreUnavailable

__all__ = ["Backoff"]

_FIRST = 0.05
_LONGEST = 1.0


class Backoff:
    """One wait, of `seconds` at most."""

    __slots__ = ("_deadline", "_pause")

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = _FIRST

    async def wait(self, error: StoreUnavailable) -> None:
        """Let some time pass; raises the error once it has been long enough."""
        if time.monotonic() > self._deadline:
            raise error
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST)
