"""The clocks of tasks: the time of day, and a clock for leases that does not jump."""

from __future__ import annotations

import time

from antiphon import wall_clock

__all__ = ["lease_clock", "now_ms", "unwinding_deadline"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_UNWIND_WITHIN_SECONDS = 3600.0
"""How long a task that has ended for its caller waits at least for a worker that unwinds its function.

Not a setting: a worker unwinds it within seconds if there is one.
"""


def now_ms() -> int:
    """Return the time, in milliseconds since 1970."""
    return int(wall_clock.now() * 1000)


def lease_clock() -> float:
    """Return the seconds of a clock that does not jump and, where the system has one, runs during sleep."""
    return time.clock_gettime(_CLOCK) + wall_clock.leases_ahead


def unwinding_deadline() -> int:
    """Return until when the store keeps a task that is cancelled now for a worker that unwinds it."""
    return now_ms() + int(_UNWIND_WITHIN_SECONDS * 1000)
