"""The watches and subscriptions of one store in this process.

Belongs to one event loop. Does not know how a store learns of changes, nor in which process they happen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from antiphon.store.contract import Watch

__all__ = ["Watchers"]

_T = TypeVar("_T")

_MAX_UNREAD_MESSAGES = 1000
"""Messages that a subscriber may be behind. A bound, so that a slow subscriber cannot fill the memory."""


class _ChangeSignal:
    """The watch of one caller. Several changes before a `wait` fire it once."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class _Subscription:
    """The unread messages of one subscriber."""

    __slots__ = ("_closed", "_unread", "_wakeup")

    def __init__(self) -> None:
        self._unread: deque[Any] = deque(maxlen=_MAX_UNREAD_MESSAGES)
        self._wakeup = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._wakeup.set()

    def put(self, data: Any) -> None:
        self._unread.append(data)
        self._wakeup.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._closed:
                return
            self._wakeup.clear()
            await self._wakeup.wait()


class Watchers:
    """The watches and subscriptions of one store in one process.

    Calls `on_idle(False)` when the first one is added, and `on_idle(True)` when the last one is removed.
    """

    def __init__(self, on_idle: Callable[[bool], None] = lambda idle: None) -> None:
        self._on_idle = on_idle
        self._by_task: dict[str, set[_ChangeSignal]] = {}
        self._for_ready: set[_ChangeSignal] = set()
        self._for_all: set[_ChangeSignal] = set()
        self._by_topic: dict[str, set[_Subscription]] = {}
        self._count = 0

    @asynccontextmanager
    async def watch(self, id: str) -> AsyncIterator[Watch]:
        """Watch one task, from entering the context."""
        signal = self._add(self._by_task.setdefault(id, set()), _ChangeSignal())
        try:
            yield signal
        finally:
            signals = self._by_task[id]
            self._remove(signals, signal)
            if not signals:
                del self._by_task[id]

    @asynccontextmanager
    async def watch_ready(self) -> AsyncIterator[Watch]:
        """Watch for tasks that become ready, from entering the context."""
        signal = self._add(self._for_ready, _ChangeSignal())
        try:
            yield signal
        finally:
            self._remove(self._for_ready, signal)

    @asynccontextmanager
    async def watch_all(self) -> AsyncIterator[Watch]:
        """Watch all tasks, from entering the context."""
        signal = self._add(self._for_all, _ChangeSignal())
        try:
            yield signal
        finally:
            self._remove(self._for_all, signal)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[AsyncIterator[Any]]:
        """Receive the messages of a topic, from entering the context."""
        subscription = self._add(self._by_topic.setdefault(topic, set()), _Subscription())
        try:
            yield aiter(subscription)
        finally:
            subscriptions = self._by_topic[topic]
            self._remove(subscriptions, subscription)
            if not subscriptions:
                del self._by_topic[topic]

    def deliver(self, topic: str, data: Any) -> None:
        """Hand a message to the subscribers of its topic."""
        for subscription in self._by_topic.get(topic, ()):
            subscription.put(data)

    @property
    def subscribed_topics(self) -> tuple[str, ...]:
        """The topics that have a subscriber."""
        return tuple(self._by_topic)

    def notify(self, ids: Iterable[str], ready: bool) -> None:
        """Fire the watches of these tasks and, with `ready`, the watches for ready tasks."""
        if not self._count:
            return
        changed = False
        for id in ids:
            changed = True
            for signal in self._by_task.get(id, ()):
                signal.set()
        if changed:
            self.notify_of_any()
        if ready:
            for signal in self._for_ready:
                signal.set()

    def notify_of_any(self) -> None:
        """Fire the watches of all tasks, because some task has changed."""
        for signal in self._for_all:
            signal.set()

    @property
    def watches_all(self) -> bool:
        """Whether there is a watch of all tasks."""
        return bool(self._for_all)

    @property
    def watched_tasks(self) -> tuple[str, ...]:
        """The ids of the tasks that are watched."""
        return tuple(self._by_task)

    @property
    def is_in_use(self) -> bool:
        """Whether there is any watch or subscription."""
        return self._count > 0

    def notify_all(self) -> None:
        """Fire every watch, for a store that does not know which tasks have changed."""
        self.notify(tuple(self._by_task), True)
        self.notify_of_any()

    def close(self) -> None:
        """Fire every watch and end every subscription after its unread messages."""
        self.notify_all()
        for subscriptions in self._by_topic.values():
            for subscription in subscriptions:
                subscription.close()

    def _add(self, group: set[_T], member: _T) -> _T:
        group.add(member)
        self._count += 1
        if self._count == 1:
            self._on_idle(False)
        return member

    def _remove(self, group: set[_T], member: _T) -> None:
        group.discard(member)
        self._count -= 1
        if not self._count:
            self._on_idle(True)
