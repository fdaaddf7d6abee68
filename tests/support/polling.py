"""Polling for a condition, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], T], within: float = 30.0) -> T:
    """Poll a condition until it is true, and return its value; fail after a deadline."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} seconds: {condition}"
        await asyncio.sleep(0.01)
    return value


def wait_until(condition: Callable[[], T], within: float = 30.0) -> T:
    """Poll a condition like `until`, in tests that are not async."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} seconds: {condition}"
        time.sleep(0.02)
    return value
