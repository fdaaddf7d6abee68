"""Ages as people write them, such as `90s` or `2h`. Pure."""

from __future__ import annotations

import re

__all__ = ["parse_age"]

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MAX_DIGITS = 9


def parse_age(text: str) -> int:
    """Return an age such as `2h` in milliseconds. Raises `ValueError`."""
    found = re.fullmatch(rf"(\d{{1,{_MAX_DIGITS}}})([{''.join(_UNIT_SECONDS)}])", text.strip(), re.ASCII)
    if found is None:
        raise ValueError("use a number and a unit, such as 90s, 30m, 2h, 7d or 4w.")
    return int(found[1]) * _UNIT_SECONDS[found[2]] * 1000
