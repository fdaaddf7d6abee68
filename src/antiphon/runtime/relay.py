"""Messages between the processes of one server, through the store that they share.

Owns the subscriptions of this process. Messages are notifications and may be lost: anything that must not
be lost is in a task's log. Without a store there are no other processes, and nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from typing import Any

from antiphon.errors import StoreError
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.store.contract import Store

__all__ = [
    "CANCELLED_TASKS",
    "INBOX_CHANGES",
    "RETRIED_TASKS",
    "ROLL_CALLS",
    "WORKER_REPORTS",
    "Relay",
    "relay_changes",
]

logger = logging.getLogger("antiphon")

CANCELLED_TASKS = "stopped"
"""The topic for the ids of cancelled tasks: the process that runs such a task stops it."""
RETRIED_TASKS = "retried"
"""The topic for the ids of failed tasks that were queued again: processes that cached the end forget it."""
INBOX_CHANGES = "inbox"
"""The topic for tasks whose questions to others have changed: their ids, and who can answer."""
ROLL_CALLS = "roll_calls"
"""The topic on which an operator asks all workers to report."""
WORKER_REPORTS = "worker_reports"
"""The topic for the reports of workers."""
_CHANGES = "changes"
_TOPICS_OF_ALL_SERVERS = (CANCELLED_TASKS, RETRIED_TASKS, INBOX_CHANGES, ROLL_CALLS, WORKER_REPORTS)
"""The topics that an operator uses, who acts on tasks without the name of their server."""
RETRY_SECONDS = 1.0
"""How long to wait before subscribing again after the store failed."""
_CLOSE_SECONDS = 1.0
"""How long closing waits for messages that are being sent."""
MAX_PENDING_MESSAGES = 10_000
"""How many messages may wait to be sent; further messages are dropped."""


class Relay:
    """Publishes messages to the other processes, and receives theirs."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._origin = secrets.token_hex(8)
        self._callbacks: dict[str, list[Callable[[Any], None]]] = {}
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.receivers: set[asyncio.Task[None]] = set()
        """What receives the messages of each topic."""
        self.sending: set[asyncio.Task[None]] = set()
        """What sends messages now."""
        self._repeated: dict[tuple[str, tuple[str, ...]], bool] = {}
        """The repeatable messages that are being sent, and whether each came again meanwhile."""

    def subscribe(self, topic: str, callback: Callable[[Any], None]) -> None:
        """Call `callback` with the messages of other processes on a topic. Use it before `open`."""
        self._callbacks.setdefault(topic, []).append(callback)

    @property
    def is_open(self) -> bool:
        """Whether messages are sent and received."""
        return self._store is not None

    async def open(self, store: Store) -> None:
        """Start to receive messages."""
        self._store, self._loop = store, asyncio.get_running_loop()
        self._repeated.clear()
        for topic, callbacks in self._callbacks.items():
            ready: asyncio.Future[None] = self._loop.create_future()
            task = asyncio.create_task(self._receive(store, topic, callbacks, ready))
            self.receivers.add(task)
            await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Send the messages that wait, and stop receiving."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self.sending:  # a message that came again is sent again
                    await asyncio.wait(tuple(self.sending))
        self._store = self._loop = None
        for task in (*self.receivers, *self.sending):
            task.cancel()
        if self.receivers:
            await asyncio.wait(self.receivers)
        self.receivers.clear()

    async def publish(self, topic: str, data: Any) -> None:
        """Send a message to all other processes; a failure of the store is logged."""
        if self._store is None:
            return
        try:
            await self._store.publish(self._stored_topic(topic), [self._origin, data])
        except StoreError as error:
            logger.warning("Cannot send a message about %r to other processes: %s", topic, error)

    def publish_soon(self, topic: str, data: Any) -> None:
        """Send a message in the background. Safe to call from any thread."""
        self._call_on_loop(self._start_sending, topic, data)

    def publish_repeatable(self, topic: str, data: tuple[str, ...]) -> None:
        """Send a message in the background. Safe to call from any thread.

        If the same message comes again while it is being sent, however often, it is sent once more.
        """
        self._call_on_loop(self._repeat, topic, data)

    def _call_on_loop(self, callback: Callable[[str, Any], object], topic: str, data: Any) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(callback, topic, data)
            except RuntimeError:  # the loop is closed: the process is stopping
                pass

    def _start_sending(self, topic: str, data: Any) -> asyncio.Task[None] | None:
        if len(self.sending) >= MAX_PENDING_MESSAGES:
            return None
        task = asyncio.create_task(self.publish(topic, data))
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)
        return task

    def _repeat(self, topic: str, data: tuple[str, ...]) -> None:
        if (topic, data) in self._repeated:
            self._repeated[topic, data] = True
        elif (task := self._start_sending(topic, data)) is not None:
            self._repeated[topic, data] = False
            task.add_done_callback(lambda _: self._end_repeatable(topic, data))

    def _end_repeatable(self, topic: str, data: tuple[str, ...]) -> None:
        came_again = self._repeated.pop((topic, data), False)
        if came_again and self._store is not None:
            self._repeat(topic, data)

    async def _receive(
        self,
        store: Store,
        topic: str,
        callbacks: list[Callable[[Any], None]],
        ready: asyncio.Future[None],
    ) -> None:
        while True:
            try:
                async with store.subscribe(self._stored_topic(topic)) as messages:
                    if not ready.done():
                        ready.set_result(None)
                    async for origin, data in messages:
                        if origin != self._origin:
                            for callback in callbacks:
                                callback(data)
                return  # the store was closed
            except StoreError as error:
                logger.debug("Cannot receive messages on %r; trying again: %s", topic, error)
            except Exception:
                logger.exception("Cannot handle a message of another process on %r; continuing.", topic)
            await asyncio.sleep(RETRY_SECONDS)

    def _stored_topic(self, topic: str) -> str:
        """Return the name of a topic in the store."""
        return topic if topic in _TOPICS_OF_ALL_SERVERS else f"{self._server}/{topic}"


def relay_changes(changes: ChangeFeed, relay: Relay) -> None:
    """Forward the changes of this process to the listeners of other processes, and theirs to ours."""

    def forward(change: Change) -> None:
        kind, name = ("list", change.kind) if isinstance(change, ListChanged) else ("resource", change.uri)
        relay.publish_repeatable(_CHANGES, (kind, name))

    def receive(data: Any) -> None:
        kind, name = data
        changes.publish_locally(ListChanged(name) if kind == "list" else ResourceUpdated(name))

    changes.forward = forward
    relay.subscribe(_CHANGES, receive)
