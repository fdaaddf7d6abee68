"""Bounds of the runs that wait in this process: how many, with how much memory, and for how long.

Owns the order in which they wait: the run that has waited longest is evicted first. A caller that has more
than its share evicts its own runs. If there are too many in all, the caller that has most loses one. It must
not know what an item does when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal, TypeAlias

from antiphon.runtime.budget import share_of
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.rate_limited_log import RateLimitedLog

__all__ = ["BoundReason", "HeldBounds", "HeldItem"]

BoundReason: TypeAlias = Literal["evicted", "expired"]
"""Why an item ends: too many items wait, or it has waited for too long."""

_SWEEP_SECONDS = 1.0
"""How often items that have waited too long are ended."""
_MEMORY_PART = 4
"""The part of `Limits.max_memory_bytes` that all items may keep: a quarter."""


class HeldItem:
    """A run that waits, or the outcome of one that a caller may still ask for."""

    __slots__ = ("expires", "label", "share", "size")

    def __init__(self, label: str, share: str) -> None:
        self.label = label
        """What the log calls it."""
        self.share = share
        self.size = 0
        """The memory that it keeps, about, in bytes."""
        self.expires = float("inf")
        """When it ends, by the clock of the event loop."""

    @property
    def is_waiting(self) -> bool:
        """Whether a function waits for an answer: then its end is logged."""
        return True

    def end(self, reason: BoundReason) -> None:
        """End the run. The item is not held any more."""
        raise NotImplementedError


class HeldBounds:
    """The items that one process holds, the one that has waited longest first."""

    def __init__(self, limits: Limits) -> None:
        self._most, self._most_bytes = limits.max_held_runs, limits.max_memory_bytes // _MEMORY_PART
        self._most_of_share = share_of(self._most, limits.principal_share)
        self._bytes_of_share = share_of(self._most_bytes, limits.principal_share)
        self._items: dict[HeldItem, None] = {}
        self._by_share: dict[str, dict[HeldItem, None]] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._log = RateLimitedLog()

    @property
    def items(self) -> tuple[HeldItem, ...]:
        """All items, the one that has waited longest first."""
        return tuple(self._items)

    @property
    def waiting(self) -> int:
        """How many functions wait for an answer."""
        return sum(item.is_waiting for item in self._items)

    def add(self, item: HeldItem) -> None:
        """Hold an item, and evict others, or the item itself, if there is no room for all of them."""
        self._items[item] = None
        own = self._by_share.setdefault(item.share, {})
        own[item] = None
        self._bytes += item.size
        while item.share and own and self._exceeds_share(own):
            self._evict(next(iter(own)))
        while self._items and (len(self._items) > self._most or self._bytes > self._most_bytes):
            groups = self._by_share.values()
            is_number = len(self._items) > self._most
            largest = max(groups, key=len) if is_number else max(groups, key=_bytes_of)
            self._evict(next(iter(largest)))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def remove(self, item: HeldItem) -> None:
        """Stop holding an item, if it is held. Do not change the size of an item that is held."""
        if item in self._items:
            del self._items[item]
            self._bytes -= item.size
            own = self._by_share[item.share]
            del own[item]
            if not own:
                del self._by_share[item.share]

    def close(self) -> None:
        """Stop looking for items that have waited too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _exceeds_share(self, own: dict[HeldItem, None]) -> bool:
        return len(own) > self._most_of_share or _bytes_of(own) > self._bytes_of_share

    def _evict(self, item: HeldItem) -> None:
        if item.is_waiting:
            self._log.warning(
                "Ended %s, which waited for an answer: this process holds %d runs with %d bytes. "
                "The limits are Limits.max_held_runs=%d and %d bytes.",
                item.label,
                len(self._items),
                self._bytes,
                self._most,
                self._most_bytes,
            )
        self.remove(item)
        item.end("evicted")

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for item in self.items:
            if now >= item.expires:
                self.remove(item)
                item.end("expired")
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._items else None


def _bytes_of(items: Iterable[HeldItem]) -> int:
    return sum(item.size for item in items)
