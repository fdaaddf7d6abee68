"""The lifetime that a caller asks for when a call becomes a task."""

from __future__ import annotations

from antiphon.errors import InvalidParams
from antiphon.model.request import CallTool

__all__ = ["requested_ttl"]

_MAX_TTL_MILLISECONDS = 100 * 366 * 24 * 3600 * 1000
"""The longest lifetime that a caller can ask for: a century. A longer one is cut."""


def requested_ttl(request: CallTool) -> int | None:
    """Return how long after its creation the task of a call expires, if the caller asks for a time.

    Raises `InvalidParams` for a time that is not positive.
    """
    ttl = None if request.task is None else request.task.ttl
    if ttl is None:
        return None
    if ttl <= 0:
        raise InvalidParams(
            f"Invalid ttl {ttl}: use a positive number of milliseconds, or leave it out to keep the task "
            "until it has ended."
        )
    return min(ttl, _MAX_TTL_MILLISECONDS)
