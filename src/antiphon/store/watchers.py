"""Who waits for which task, and who hears which topic, in this process.

Belongs to one event loop, and knows no store.
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

_BEHIND = 1000
"""How many messages a hearer may be behind."""


class _Bell:
    """One watcher's bell. Rung twice before anyone listens, it is still rung once."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class _Ear:
    """What one hearer has not taken yet."""

    __slots__ = ("_bell", "_heard", "_over")

    def __init__(self) -> None:
        self._heard: deque[Any] = deque(maxlen=_BEHIND)
        self._bell = asyncio.Event()
        self._over = False

    def ring(self) -> None:
        self._over = True
        self._bell.set()

    def tell(self, data: Any) -> None:
        self._heard.append(data)
        self._bell.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            while self._heard:
                yield self._heard.popleft()
            if self._over:
                return
            self._bell.clear()
            await self._bell.wait()


class Watchers:
    """The watchers and hearers of one store in one process.

    `idle` is called with false when the first of them comes, and with true when the last one is gone.
    """

    def __init__(self, idle: Callable[[bool], None] = lambda idle: None) -> None:
        self._idle = idle
        self._of_task: dict[str, set[_Bell]] = {}
        self._of_ready: set[_Bell] = set()
        self._of_topic: dict[str, set[_Ear]] = {}
        self._count = 0

    @asynccontextmanager
    async def watch(self, id: str) -> AsyncIterator[Watch]:
        """Be told of one task, from entering on."""
        bell = self._come(self._of_task.setdefault(id, set()), _Bell())
        try:
            yield bell
        finally:
            bells = self._of_task[id]
            self._go(bells, bell)
            if not bells:
                del self._of_task[id]

    @asynccontextmanager
    async def watch_ready(self) -> AsyncIterator[Watch]:
        """Be told of tasks that become ready, from entering on."""
        bell = self._come(self._of_ready, _Bell())
        try:
            yield bell
        finally:
            self._go(self._of_ready, bell)

    @asynccontextmanager
    async def hear(self, topic: str) -> AsyncIterator[AsyncIterator[Any]]:
        """Be told what is said on a topic, from entering on."""
        ear = self._come(self._of_topic.setdefault(topic, set()), _Ear())
        try:
            yield aiter(ear)
        finally:
            ears = self._of_topic[topic]
            self._go(ears, ear)
            if not ears:
                del self._of_topic[topic]

    def tell(self, topic: str, data: Any) -> None:
        """Tell those who hear a topic."""
        for ear in self._of_topic.get(topic, ()):
            ear.tell(data)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that somebody hears."""
        return tuple(self._of_topic)

    def wake(self, ids: Iterable[str], ready: bool) -> None:
        """Tell those who watch these tasks and, if so, those who wait for a ready one."""
        if not self._count:
            return
        for id in ids:
            for bell in self._of_task.get(id, ()):
                bell.ring()
        if ready:
            for bell in self._of_ready:
                bell.ring()

    @property
    def watched(self) -> tuple[str, ...]:
        """The tasks that somebody watches."""
        return tuple(self._of_task)

    @property
    def is_watched(self) -> bool:
        """Whether anybody watches anything."""
        return self._count > 0

    def wake_all(self) -> None:
        """Tell everyone, when it is not known what has changed."""
        self.wake(tuple(self._of_task), True)

    def end(self) -> None:
        """Tell everyone, for the last time: what was said is still heard, and no more will come."""
        self.wake_all()
        for ears in self._of_topic.values():
            for ear in ears:
                ear.ring()

    def _come(self, those: set[_T], one: _T) -> _T:
        those.add(one)
        self._count += 1
        if self._count == 1:
            self._idle(False)
        return one

    def _go(self, those: set[_T], one: _T) -> None:
        those.discard(one)
        self._count -= 1
        if not self._count:
            self._idle(True)
