"""What goes on in the server under load, as it says itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.support.speakers import Speaker


async def reached(asker: Speaker, condition: Callable[[dict[str, int]], bool], within: float = 30.0) -> None:
    """Ask the server for its state until the condition holds; fails if it never does."""
    deadline = time.monotonic() + within
    while True:
        state = dict((await asker.call("state")).result["structuredContent"])
        if condition(state):
            return
        assert time.monotonic() < deadline, state
        await asyncio.sleep(0.02)


def idle(state: dict[str, int]) -> bool:
    """Whether nothing goes on but what asks."""
    return state["working"] == 0 and state["tasks"] < 10
