"""Counts the streams that have no end of their own, in all and by share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.errors import Busy
from antiphon.runtime.budget import Usages, share_of
from antiphon.runtime.limits import Limits

__all__ = ["Listeners"]

_RETRY_AFTER_SECONDS = 30
"""When a client should try again after it was refused."""


class Listeners:
    """The listeners of one endpoint."""

    def __init__(self, limits: Limits, usages: Usages) -> None:
        self._most = limits.max_listeners
        self._share = share_of(limits.max_listeners, limits.principal_share)
        self._usages = usages
        self._count = 0

    @contextmanager
    def counting(self, share: str) -> Iterator[None]:
        """Count a listener, of the caller with this share if it has one; raises `Busy`."""
        if self._count >= self._most:
            raise Busy(
                f"The server has {self._count} of at most {self._most} listeners: try again later.",
                retry_after=_RETRY_AFTER_SECONDS,
            )
        usage = self._usages.of(share) if share else None
        if usage is not None:
            if usage.listeners >= self._share:
                raise Busy(
                    f"You have {usage.listeners} of at most {self._share} listeners: "
                    "close one, or try again later.",
                    retry_after=_RETRY_AFTER_SECONDS,
                )
            usage.listeners += 1
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if usage is not None:
                usage.listeners -= 1
