"""Tells listeners, in every process, which tasks ask other questions to others than before.

Owns the listeners of this process. A message names a task and those whom it concerns, and no question: a
listener reads the task. Messages may be lost, so a listener also reads all questions now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from antiphon import wall_clock
from antiphon.model.task import Task
from antiphon.model.waiting import Wait
from antiphon.runtime.relay import INBOX_CHANGES, Relay

__all__ = ["InboxFeed", "InboxListener"]

_MAX_CHANGED_TASKS = 1000
"""How many changed tasks a listener keeps that it has not read. Of more, it reads all questions again."""


class InboxListener:
    """The tasks whose questions have changed for one listener, which answers for some names."""

    def __init__(self, principal_id: str, names: Collection[str], *, closed: bool) -> None:
        self._principal_id = principal_id
        self.names = names
        self.is_closed = closed
        self._changed: dict[str, None] = {}
        self._overflowed = False
        self._news = asyncio.Event()

    def deliver(self, task_id: str, names: Collection[str], people: Collection[str]) -> None:
        """Add a task, if the change concerns this listener: by a name, or as one of the people."""
        if self._overflowed:
            return
        if self._principal_id in people or not set(names).isdisjoint(self.names):
            self._changed[task_id] = None
            self._overflowed = len(self._changed) > _MAX_CHANGED_TASKS
            self._news.set()

    def close(self) -> None:
        """Let the listener end."""
        self.is_closed = True
        self._news.set()

    async def changed(self, within: float) -> Collection[str] | None:
        """Wait for changes, and return the ids of the tasks; `None` if all questions have to be read.

        That is the case after `within` seconds without a change, and after very many changes.
        """
        if not self.is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._news.wait()
        self._news.clear()
        changed, self._changed = self._changed, {}
        overflowed, self._overflowed = self._overflowed, False
        return None if overflowed or not changed else changed


class InboxFeed:
    """The listeners of one server, and the way to those in other processes."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._listeners: set[InboxListener] = set()
        self._closed = False
        relay.subscribe(INBOX_CHANGES, self._receive)

    def publish(self, before: Task, after: Task) -> None:
        """Tell all processes that a task has changed, if its questions to others have."""
        if before.waits == after.waits:
            return
        changed = [*_changed_questions(before, after), *_changed_questions(after, before)]
        if changed:
            names = sorted({name for wait in changed for name in wait.to})
            people = sorted({id for wait in changed for id in wait.people})
            self.deliver(after.id, names, people)
            self._relay.publish_soon(INBOX_CHANGES, [after.id, names, people])

    @contextmanager
    def listening(
        self, principal_id: str, names: Collection[str], *, until: float | None = None
    ) -> Iterator[InboxListener]:
        """Yield a listener for the questions to a principal and to these names.

        The listener is closed at `until`, in seconds since the epoch, if it is not `None`.
        """
        listener = InboxListener(principal_id, names, closed=self._closed)
        self._listeners.add(listener)
        left = None if until is None else max(0.0, until - wall_clock.now())
        timer = None if left is None else asyncio.get_running_loop().call_later(left, listener.close)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """End all listeners."""
        self._closed = True
        for listener in self._listeners:
            listener.close()

    def reopen(self) -> None:
        """Accept listeners again, when the server starts again."""
        self._closed = False

    def deliver(self, task_id: str, names: Collection[str], people: Collection[str]) -> None:
        """Tell the listeners of this process of a task that has changed."""
        for listener in self._listeners:
            listener.deliver(task_id, names, people)

    def _receive(self, data: Any) -> None:
        task_id, names, people = data
        self.deliver(task_id, names, people)


def _changed_questions(task: Task, other: Task) -> Iterator[Wait]:
    """Yield the questions of a task to others that are not the same in the other task."""
    for key, wait in task.waits.items():
        if wait.question is not None and wait != other.waits.get(key):
            yield wait
