"""Repeats the work of a worker, through errors and outages of the store. Does not know what the work is."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Never

from antiphon.errors import StoreError
from antiphon.runtime.tasks.clocks import lease_clock

__all__ = ["STORE_RETRY_SECONDS", "repeat"]

logger = logging.getLogger("antiphon")

STORE_RETRY_SECONDS = 1.0
"""How long the worker pauses after the store did not respond."""
_OUTAGE_LOG_SECONDS = 60.0
"""How often the log says that the store does not respond, while it does not."""


async def repeat(work: Callable[[], Awaitable[object]], every: float) -> Never:
    """Run `work` every so many seconds, and continue after errors. Log an outage once a minute."""
    logged_at = -math.inf
    while True:
        try:
            await work()
        except StoreError as error:
            if lease_clock() - logged_at >= _OUTAGE_LOG_SECONDS:
                logged_at = lease_clock()
                logger.warning("The store does not respond; the worker tries again: %s", error)
            await asyncio.sleep(STORE_RETRY_SECONDS)
        except Exception:
            logger.exception("Unexpected error in the worker loop; continuing.")
            await asyncio.sleep(STORE_RETRY_SECONDS)
        await asyncio.sleep(every)
