"""Delivers changes of lists and resources to listeners.

Owns the listeners of this process. A listener holds each pending change once, which bounds its memory. It
must not know how a change reaches a client, or other processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from antiphon import wall_clock
from antiphon.model.notification import Change, ListChanged
from antiphon.model.request import SubscriptionFilter

__all__ = ["ChangeFeed", "Listener", "change_filter"]


def change_filter(interests: SubscriptionFilter) -> Callable[[Change], bool]:
    """Return a predicate that tells whether a subscription covers a change."""
    lists = {
        "tools": interests.tools_list_changed,
        "prompts": interests.prompts_list_changed,
        "resources": interests.resources_list_changed,
    }
    uris = frozenset(interests.resource_subscriptions)
    return lambda change: lists[change.kind] if isinstance(change, ListChanged) else change.uri in uris


class ChangeFeed:
    """The listeners of one server."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._closed = False
        self.forward: Callable[[Change], None] = lambda change: None
        """Passes a change on to other processes."""

    def __len__(self) -> int:
        return len(self._listeners)

    def publish(self, change: Change) -> None:
        """Deliver a change to the listeners of all processes. Safe to call from any thread."""
        self.publish_locally(change)
        self.forward(change)

    def publish_locally(self, change: Change) -> None:
        """Deliver a change to the listeners of this process. Safe to call from any thread."""
        for listener in tuple(self._listeners):
            listener.deliver(change)

    def listen(self, is_relevant: Callable[[Change], bool], *, until: float | None = None) -> Listener:
        """Return a listener for relevant changes: enter its context, and iterate over it.

        The iteration ends at `until`, in seconds since the epoch, if it is not `None`.
        """
        return Listener(self._listeners, is_relevant, closed=self._closed, until=until)

    def close(self) -> None:
        """End all listeners, after they have received the pending changes."""
        self._closed = True
        for listener in tuple(self._listeners):
            listener.close()

    def reopen(self) -> None:
        """Accept listeners again, when the server starts again."""
        self._closed = False


class Listener:
    """The pending changes of one listener, each once, in order."""

    def __init__(
        self,
        listeners: set[Listener],
        is_relevant: Callable[[Change], bool],
        *,
        closed: bool,
        until: float | None = None,
    ) -> None:
        self._listeners = listeners
        self._is_relevant = is_relevant
        self._pending: dict[Change, None] = {}
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed = closed
        self._until = until
        self._timer: asyncio.TimerHandle | None = None
        if closed:
            self._ready.set()

    def deliver(self, change: Change) -> None:
        """Add a change, if it is relevant to this listener."""
        if self._is_relevant(change):
            self._loop.call_soon_threadsafe(self._enqueue, change)

    def close(self) -> None:
        """End the iteration after the pending changes."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._ready.set)

    def _enqueue(self, change: Change) -> None:
        self._pending[change] = None
        self._ready.set()

    def __enter__(self) -> Listener:
        self._listeners.add(self)
        if self._until is not None:
            self._timer = self._loop.call_later(max(0.0, self._until - wall_clock.now()), self.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listeners.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            await self._ready.wait()
            self._ready.clear()
            pending, self._pending = self._pending, {}
            for change in pending:
                yield change
            if self._closed:
                return
