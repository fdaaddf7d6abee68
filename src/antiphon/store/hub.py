"""Who waits for which task in this process. Belongs to one event loop, and knows no store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from antiphon.store.log import Watch

__all__ = ["Hub"]


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


class Hub:
    """The watchers of one store in one process.

    `idle` is called with false when the first watcher comes, and with true when the last one is gone.
    """

    def __init__(self, idle: Callable[[bool], None] = lambda idle: None) -> None:
        self._idle = idle
        self._of_task: dict[str, set[_Bell]] = {}
        self._of_ready: set[_Bell] = set()
        self._count = 0

    @asynccontextmanager
    async def watch(self, id: str) -> AsyncIterator[Watch]:
        """Be told of one task, from entering on."""
        bell = self._come(self._of_task.setdefault(id, set()))
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
        bell = self._come(self._of_ready)
        try:
            yield bell
        finally:
            self._go(self._of_ready, bell)

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

    def wake_all(self) -> None:
        """Tell everyone, when it is not known what has changed."""
        self.wake(tuple(self._of_task), True)

    def _come(self, bells: set[_Bell]) -> _Bell:
        bell = _Bell()
        bells.add(bell)
        self._count += 1
        if self._count == 1:
            self._idle(False)
        return bell

    def _go(self, bells: set[_Bell], bell: _Bell) -> None:
        bells.discard(bell)
        self._count -= 1
        if not self._count:
            self._idle(True)
