"""Who wants to hear of which changes. A listener keeps each change once, so its memory is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from antiphon.model.notification import Change, ListChanged
from antiphon.model.request import SubscriptionFilter

__all__ = ["ChangeFeed", "Listener", "change_filter"]


def change_filter(interests: SubscriptionFilter) -> Callable[[Change], bool]:
    """Whether a change is of interest."""
    lists = {
        "tools": interests.tools_list_changed,
        "prompts": interests.prompts_list_changed,
        "resources": interests.resources_list_changed,
    }
    uris = frozenset(interests.resource_subscriptions)
    return lambda change: lists[change.kind] if isinstance(change, ListChanged) else change.uri in uris


class ChangeFeed:
    """The changes of one server, and everyone who listens."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._closed = False
        self.forward: Callable[[Change], None] = lambda change: None
        """Tells those who listen at other processes."""

    def publish(self, change: Change) -> None:
        """Tell everyone who is is_relevant, wherever they listen. Safe from any thread."""
        self.publish_locally(change)
        self.forward(change)

    def publish_locally(self, change: Change) -> None:
        """Tell everyone who listens here. Safe from any thread."""
        for listener in tuple(self._listeners):
            listener.deliver(change)

    def listen(self, is_relevant: Callable[[Change], bool]) -> Listener:
        """Listen from now on; enter the listener, and iterate over it."""
        return Listener(self._listeners, is_relevant, closed=self._closed)

    def close(self) -> None:
        """End all listening, after what has already happened was told."""
        self._closed = True
        for listener in tuple(self._listeners):
            listener.close()

    def reopen(self) -> None:
        """Let people listen again, on a server that is started again."""
        self._closed = False


class Listener:
    """One listener's changes, each once, in order."""

    def __init__(
        self, listeners: set[Listener], is_relevant: Callable[[Change], bool], *, closed: bool
    ) -> None:
        self._listeners = listeners
        self._is_relevant = is_relevant
        self._pending: dict[Change, None] = {}
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed = closed
        if closed:
            self._ready.set()

    def deliver(self, change: Change) -> None:
        """Note a change, if it is of interest."""
        if self._is_relevant(change):
            self._loop.call_soon_threadsafe(self._enqueue, change)

    def close(self) -> None:
        """Stop once what is pending was taken."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._ready.set)

    def _enqueue(self, change: Change) -> None:
        self._pending[change] = None
        self._ready.set()

    def __enter__(self) -> Listener:
        self._listeners.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listeners.discard(self)

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            await self._ready.wait()
            self._ready.clear()
            pending, self._pending = self._pending, {}
            for change in pending:
                yield change
            if self._closed:
                return
