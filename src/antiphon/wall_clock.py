"""The time of day, which tests can move ahead: see `antiphon.testing.Clock`.

Code that compares or stores a time of day asks here. Leases go by a clock that does
not jump, and that only the tests of this library move.
"""

from __future__ import annotations

import time

__all__ = ["ahead", "is_moved", "leases_ahead", "now"]

ahead = 0.0
"""How many seconds a test has moved the time ahead."""

leases_ahead = 0.0
"""How many seconds a test has moved the clocks of leases ahead."""

is_moved = False
"""Whether a test uses a clock that moves the time."""


def now() -> float:
    """Return the time, in seconds since 1970."""
    return time.time() + ahead
