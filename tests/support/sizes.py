"""The sizes of tests that are larger under `make test-long`, because they show more the longer they run."""

from __future__ import annotations

import os

__all__ = ["size"]

IS_LONG = bool(os.environ.get("LONG_TESTS"))


def size(short: int, long: int) -> int:
    """Return the size of a test: the short one, unless all sizes are long."""
    return long if IS_LONG else short
