"""A rate limit by principal: a token bucket for each caller.

The buckets are in the memory of the process. With several processes, each one allows the full rate.
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
    """Limits the number of requests of each principal, with a token bucket.

    A request over the limit is refused with `RateLimited`: 429 and `Retry-After` over HTTP, a JSON-RPC error
    on other transports.

    - `rate`: the number of requests per second.
    - `burst`: the number of requests at once. Default: `rate`, rounded up.
    - `key`: a function that returns the bucket of a request. Default: the id of the principal, so all callers
      of a server without authentication share one bucket.
    - `max_callers`: the number of buckets in memory. The one used least recently is evicted first.
    - `clock`: a function that returns the time in seconds. Replace it in tests.

    Raises `DefinitionError` if a number is not greater than zero.
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
                f"RateLimit({rate}, burst={burst}, max_callers={max_callers}): "
                "each number must be greater than zero."
            )
        self._rate = rate
        self._burst = float(burst)
        self._key = key
        self._max_callers = max_callers
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The tokens of each caller, and when they were counted."""

    async def __call__(self, incoming: IncomingRequest, call_next: CallNext) -> Any:
        """Handle a request if its caller has a token left; raises `RateLimited`."""
        self.take(self._key(incoming))
        return await call_next()

    def take(self, caller: str) -> None:
        """Take a token of a caller; raises `RateLimited` if none is left."""
        now = self._clock()
        tokens, counted = self._buckets.get(caller, (self._burst, now))
        tokens = min(self._burst, tokens + max(0.0, now - counted) * self._rate)
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
