"""Logs warnings that callers can cause, at a bounded rate.

Owns when each message was logged last. It must not know what the messages are about.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

__all__ = ["LOG_SECONDS", "RateLimitedLog"]

logger = logging.getLogger("antiphon")

LOG_SECONDS = 60.0
"""How long the log is silent about a condition after it was logged: a flood must not fill the disk too."""


class RateLimitedLog:
    """Logs each warning once per `LOG_SECONDS`, and then how often it was left out."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[float, int]] = {}
        """When a message was logged last, and how often it was left out since."""

    def warning(self, message: str, *values: Any) -> None:
        """Log a warning, unless the same message was logged lately."""
        now = asyncio.get_running_loop().time()
        last, left_out = self._logged.get(message, (now - LOG_SECONDS, 0))
        if now - last < LOG_SECONDS:
            self._logged[message] = (last, left_out + 1)
            return
        self._logged[message] = (now, 0)
        if left_out:
            logger.warning(message + " (%d times more since the last such line)", *values, left_out)
        else:
            logger.warning(message, *values)
