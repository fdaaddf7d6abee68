"""Polling the state of the server under load."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.polling import until
from tests.support.speakers import Speaker


async def reached(asker: Speaker, condition: Callable[[dict[str, int]], bool]) -> None:
    """Poll the state of the server until the condition holds; fail after a deadline."""

    async def holds() -> bool:
        return condition(dict((await asker.call("state")).result["structuredContent"]))

    await until(holds)


def idle(state: dict[str, int]) -> bool:
    """Return whether the server is idle, apart from the call that asks."""
    return state["working"] == 0 and state["tasks"] < 10
