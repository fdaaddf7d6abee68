"""Hands what the poller's thread has noticed to the watchers on the event loop. Knows no database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from antiphon.store.watchers import Watchers

__all__ = ["callbacks_on_loop"]


def callbacks_on_loop(watchers: Watchers) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the functions `notify` and `deliver` that the poller calls from its thread."""
    loop = asyncio.get_running_loop()

    def notify(touched: Collection[str] | None, ready: bool) -> None:
        if touched is None:
            watchers.notify_all()
        else:
            watchers.notify(touched, ready)

    def deliver(messages: Sequence[tuple[str, str]]) -> None:
        for topic, data in messages:
            watchers.deliver(topic, msgspec.json.decode(data))

    def on_loop(function: Callable[..., None], *arguments: Any) -> None:
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed, so there are no watchers
            pass

    return partial(on_loop, notify), partial(on_loop, deliver)
