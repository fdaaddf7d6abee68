"""What the processes of one server say to each other, through the store that they relay_changes.

Owns who is told of which topic in this process. What it passes on is news, never truth: whatever must not
be lost is in a log. Without a store there is nobody else, and nothing is said.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from antiphon.errors import StoreError
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.store.contract import Store

__all__ = ["CANCELLED_TASKS", "Relay", "relay_changes"]

logger = logging.getLogger("antiphon")

CANCELLED_TASKS = "stopped"
"""Tasks that were cancelled, by id: whoever runs one of them stops it."""
_CHANGES = "changes"
_RETRY_SECONDS = 1.0
"""Seconds to wait before hearing again, from a store that is away."""
_MAX_PENDING_MESSAGES = 10_000
"""Things that may be on their way out at once; more are not said."""


class Relay:
    """One process's end."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._origin = secrets.token_hex(8)
        self._callbacks: dict[str, list[Callable[[Any], None]]] = {}
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receivers: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def subscribe(self, topic: str, callback: Callable[[Any], None]) -> None:
        """Have this called with what other processes say on a topic; before the server starts."""
        self._callbacks.setdefault(topic, []).append(callback)

    @property
    def is_open(self) -> bool:
        """Whether there may be other processes to talk to."""
        return self._store is not None

    async def open(self, store: Store) -> None:
        """Begin to hear what others say."""
        self._store, self._loop = store, asyncio.get_running_loop()
        for topic, callbacks in self._callbacks.items():
            ready: asyncio.Future[None] = self._loop.create_future()
            task = asyncio.create_task(self._receive(store, topic, callbacks, ready))
            self._receivers.add(task)
            await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Say what is still to be said, and hear nothing more."""
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=1.0)
        self._store = self._loop = None
        for task in (*self._receivers, *self._sending):
            task.cancel()
        if self._receivers:
            await asyncio.wait(self._receivers)
        self._receivers.clear()

    async def publish(self, topic: str, data: Any) -> None:
        """Tell all other processes; they hear it if they can."""
        if self._store is None:
            return
        try:
            await self._store.publish(self._stored_topic(topic), [self._origin, data])
        except StoreError as error:
            logger.warning("Other processes do not hear of this (%s): %s", topic, error)

    def publish_soon(self, topic: str, data: Any) -> None:
        """The same, without waiting for it. Safe from any thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._start_sending, topic, data)
            except RuntimeError:  # the loop is closed: nobody is left to say it
                pass

    def _start_sending(self, topic: str, data: Any) -> None:
        if len(self._sending) < _MAX_PENDING_MESSAGES:
            task = asyncio.create_task(self.publish(topic, data))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

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
                logger.debug("Others are receive later: %s", error)
            except Exception:
                logger.exception("What another process said on %s could not be understood.", topic)
            await asyncio.sleep(_RETRY_SECONDS)

    def _stored_topic(self, topic: str) -> str:
        """A topic in a store. Tasks are the store's, whichever server they are of."""
        return topic if topic == CANCELLED_TASKS else f"{self._server}/{topic}"


def relay_changes(changes: ChangeFeed, relay: Relay) -> None:
    """Let the changes of one process be receive by those who listen at the others."""

    def forward(change: Change) -> None:
        kind, name = ("list", change.kind) if isinstance(change, ListChanged) else ("resource", change.uri)
        relay.publish_soon(_CHANGES, [kind, name])

    def receive(data: Any) -> None:
        kind, name = data
        changes.publish_locally(ListChanged(name) if kind == "list" else ResourceUpdated(name))

    changes.forward = forward
    relay.subscribe(_CHANGES, receive)
