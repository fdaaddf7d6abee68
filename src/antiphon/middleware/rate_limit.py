"""A rate limit by principal: a token bucket for each caller.

The buckets are in memory, one set for each process. With several processes, a caller gets the rate once in
each.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from antiphon.errors import DefinitionError, RateLimited
from antiphon.runtime.middleware import CallNext, IncomingRequest

__all__ = ["RateLimit"]


def _principal_id(incoming: IncomingRequest) -> str:
    return incoming.principal.id


class RateLimit:
    """Allows each principal `rate` requests a second, and bursts of up to `burst` requests.

    A request over the limit is refused with `RateLimited`: 429 and `Retry-After` over HTTP, a JSON-RPC
    error elsewhere. `key` says whose bucket a request counts against; by default it is the id of the
    principal, so that all callers of a server without authentication share one. At most `max_callers`
    buckets are kept; the one used least recently is evicted first.
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: int | None = None,
        key: Callable[[IncomingRequest], str] = _principal_id,
        max_callers: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        burst = max(1, math.ceil(rate)) if burst is None else burst
        if not rate > 0 or burst < 1 or max_callers < 1:
            raise DefinitionError(
                f"RateLimit({rate}, burst={burst}, max_callers={max_callers}): each is greater than zero."
            )
        self._rate = rate
        self._burst = float(burst)
        self._key = key
        self._max_callers = max_callers
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """For each caller: the tokens in its bucket, and when they were counted."""

    async def __call__(self, incoming: IncomingRequest, call_next: CallNext) -> Any:
        """Handle a request if its caller has a token left; raises `RateLimited`."""
        self._take(self._key(incoming))
        return await call_next()

    def _take(self, caller: str) -> None:
        now = self._clock()
        tokens, counted = self._buckets.get(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - counted) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        self._buckets.move_to_end(caller)
        while len(self._buckets) > self._max_callers:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = (1 - tokens) / self._rate
            raise RateLimited(
                f"Too many requests: this server allows {self._rate:g} a second for each caller. "
                f"Try again in {math.ceil(wait)} s.",
                retry_after=math.ceil(wait),
            )
