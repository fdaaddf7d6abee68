"""Backoff: growing delays, jitter, and a timeout that counts from the first failure."""

from __future__ import annotations

import asyncio
import time

import pytest

from antiphon import backoff
from antiphon.backoff import Backoff


class Clock:
    """A clock that moves only by sleeping or by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(backoff.asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_delays_grow_up_to_the_longest_and_start_again_after_a_reset() -> None:
    delays = Backoff(1.0, 5.0)
    assert [delays.next_delay() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    delays.reset()
    assert delays.delay == delays.next_delay() == 1.0
    assert delays.delay == 2.0


def test_the_factor_sets_how_fast_delays_grow() -> None:
    delays = Backoff(2.0, 100.0, factor=1.5)
    assert [delays.next_delay() for _ in range(3)] == [2.0, 3.0, 4.5]


def test_jitter_spreads_a_delay_around_its_length() -> None:
    found = [Backoff(1.0, 1.0, jitter=0.5).next_delay() for _ in range(200)]
    assert 0.5 <= min(found) < max(found) <= 1.5
    assert len(set(found)) > 1


async def test_waiting_sleeps_for_each_delay(clock: Clock) -> None:
    delays = Backoff(1.0, 2.0)
    for _ in range(3):
        await delays.wait(ValueError("away"))
    assert clock.slept == [1.0, 2.0, 2.0]


async def test_waiting_raises_the_error_before_it_would_exceed_the_timeout(clock: Clock) -> None:
    delays, error = Backoff(1.0, 4.0, timeout=8.0), ValueError("away")
    clock.now += 1000  # the timeout counts from the first failure
    for _ in range(3):
        await delays.wait(error)
    with pytest.raises(ValueError, match="away") as raised:
        await delays.wait(error)
    assert raised.value is error
    assert clock.slept == [1.0, 2.0, 4.0]


async def test_a_reset_starts_a_new_timeout(clock: Clock) -> None:
    delays = Backoff(1.0, 1.0, timeout=1.5)
    await delays.wait(ValueError("away"))
    delays.reset()
    await delays.wait(ValueError("away"))
    with pytest.raises(ValueError, match="away"):
        await delays.wait(ValueError("away"))
    assert clock.slept == [1.0, 1.0]


async def test_a_timeout_of_zero_raises_at_once() -> None:
    async with asyncio.timeout(60):
        with pytest.raises(ValueError, match="away"):
            await Backoff(5.0, 5.0, timeout=0).wait(ValueError("away"))
