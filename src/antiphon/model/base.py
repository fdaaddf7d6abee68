"""The base class of values that are written to the wire under their own field names."""

from __future__ import annotations

import msgspec

__all__ = ["Value"]


class Value(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A frozen value that encodes with camel-case names and leaves out fields at their defaults."""
