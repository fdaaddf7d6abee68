"""How tests wait: for an event, with a deadline that a slow machine keeps too. No other test code sleeps.

`until` and `wait_until` wait for a condition, `turns` lets the event loop go on, and `forever` never ends.
`pause`, `pause_thread`, `moment` and `Stopwatch` are for what has to let real time pass, or to measure it:
the files that may use them are named in `tests/real_time.txt`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

DEADLINE = 60.0
"""The seconds after which a test gives up waiting: an event that comes at all has come by then."""

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.1
"""The seconds between two looks. They grow, so that a long wait does not slow down what it waits for."""

T = TypeVar("T")


async def until(condition: Callable[[], T | Awaitable[T]], within: float = DEADLINE) -> T:
    """Poll a condition, async or not, until it is true, and return its value; fail after a deadline."""
    deadline, delay = time.monotonic() + within, FIRST_PAUSE
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return cast(T, value)
        assert time.monotonic() < deadline, f"not within {within:g} seconds: {condition}"
        await asyncio.sleep(delay)
        delay = min(1.2 * delay, LONGEST_PAUSE)


def wait_until(condition: Callable[[], T], within: float = DEADLINE) -> T:
    """Poll a condition like `until`, in tests that are not async."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} seconds: {condition}"
        time.sleep(0.02)
    return value


async def turns(number: int = 1) -> None:
    """Let the event loop do what is ready, a number of times."""
    for _ in range(number):
        await asyncio.sleep(0)


async def forever() -> None:
    """Never return: the caller is cancelled, or killed."""
    await asyncio.Event().wait()


async def pause(seconds: float) -> None:
    """Let real time pass."""
    await asyncio.sleep(seconds)


def pause_thread(seconds: float) -> None:
    """Let real time pass, in this thread."""
    time.sleep(seconds)


def moment() -> float:
    """Return the time of the clock that all processes of the machine share, and that nobody sets."""
    return time.monotonic()


class Stopwatch:
    """Measures real time from its creation on."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since then."""
        return time.monotonic() - self._began
