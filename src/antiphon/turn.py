"""Long work in steps, between which the other work of an event loop goes on.

A coroutine that finds each next thing ready never waits, so that nothing else would run. Owns how much is
done at once, and knows nothing of the work.
"""

from __future__ import annotations

import asyncio

__all__ = ["Turn"]

_STEPS = 16
"""How many steps are done before others have their turn."""
_STEP_BYTES = 1024
"""How many bytes count as a further step."""


class Turn:
    """The turn of one worker, such as the reader of one connection."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _STEPS

    async def step(self, size: int = 0) -> None:
        """Count a step of so many bytes, and give others their turn if this one is over."""
        self._left -= 1 + size // _STEP_BYTES
        if self._left <= 0:
            self._left = _STEPS
            await asyncio.sleep(0)
