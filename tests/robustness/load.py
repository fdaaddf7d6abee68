"""Polling the state of the server under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.support.speakers import Speaker


async def reached(asker: Speaker, condition: Callable[[dict[str, int]], bool], within: float = 30.0) -> None:
    """Poll the state of the server until the condition holds; fail after a deadline."""
    deadline = time.monotonic() + within
    while True:
        state = dict((await asker.call("state")).result["structuredContent"])
        if condition(state):
            return
        assert time.monotonic() < deadline, state
        await asyncio.sleep(0.02)


def idle(state: dict[str, int]) -> bool:
    """Return whether the server is idle, apart from the call that asks."""
    return state["working"] == 0 and state["tasks"] < 10
