"""The time of day, which tests can move ahead: see `antiphon.testing.Clock`.

Code that compares or stores a time of day asks here. Leases go by another clock, which nobody moves.
"""

from __future__ import annotations

import time

__all__ = ["ahead", "is_moved", "now"]

ahead = 0.0
"""How many seconds a test has moved the time ahead."""

is_moved = False
"""Whether a test uses a clock that moves the time."""


def now() -> float:
    """Return the time, in seconds since 1970."""
    return time.time() + ahead
