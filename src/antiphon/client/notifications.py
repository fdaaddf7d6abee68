"""Handles the notifications of a server: log messages, progress, changes, and the status of tasks.

Owns the log level and the set of listeners. Repeats the subscriptions in a new session.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from antiphon.client.catalog_cache import CatalogCache
from antiphon.client.connection import Callback, Connection, deliver
from antiphon.client.subscriptions import Subscriptions
from antiphon.client.tasks.requests import TaskRequests
from antiphon.errors import RequestError
from antiphon.model.identity import LOG_LEVELS, LogLevel
from antiphon.model.notification import (
    Acknowledged,
    Change,
    ListChanged,
    Log,
    Notification,
    Progress,
    ResourceUpdated,
)
from antiphon.model.request import RequestId, SetLogLevel, SubscriptionFilter
from antiphon.model.task_status import TaskStatus
from antiphon.runtime.change_feed import ChangeFeed, Listener, change_filter

__all__ = ["Notifications"]

logger = logging.getLogger("antiphon.client")


class Notifications:
    """The notifications of one client. `has_handlers` says whether the client answers requests too."""

    connection: Connection
    subscriptions: Subscriptions
    tasks: TaskRequests

    def __init__(
        self,
        catalog: CatalogCache,
        *,
        log_level: LogLevel | None,
        on_log: Callback | None,
        on_progress: Callback | None,
        on_change: Callback | None,
        has_handlers: bool,
    ) -> None:
        self.log_level: LogLevel | None = log_level or ("info" if on_log is not None else None)
        self.on_progress = on_progress
        self._catalog = catalog
        self._level_was_set = log_level is not None
        self._on_log, self._on_change = on_log, on_change
        self._needs_stream = on_log is not None or on_change is not None or has_handlers
        self._changes = ChangeFeed()

    def attach(self, connection: Connection, tasks: TaskRequests) -> None:
        """Use a connection, and the tasks on it."""
        self.connection = connection
        self.subscriptions = Subscriptions(connection, on_break=self._catalog.evict)
        self.tasks = tasks

    async def start(self) -> None:
        """Open the stream for notifications, subscribe to changes and set the log level, as far as needed."""
        await self._open_stream()
        if self._on_change is not None:
            await self._try(self.subscriptions.add(lists=True))
        if self._level_was_set and self.log_level is not None:
            await self._try(self.set_log_level(self.log_level))

    async def restart(self) -> None:
        """Repeat the subscriptions and the log level in a new session, or after the stream broke."""
        await self._open_stream()
        await self._try(self.subscriptions.renew())
        if self._level_was_set and self.log_level is not None:
            await self._try(self.set_log_level(self.log_level))
        await self._assume_changes()

    async def close(self) -> None:
        """End all listening."""
        self._changes.close()
        await self.subscriptions.close()

    async def set_log_level(self, level: LogLevel) -> None:
        """Receive log messages of this level and above from now on; raises `ValueError`."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not a log level: use one of {', '.join(LOG_LEVELS)}.")
        self.log_level, self._level_was_set = level, True
        if self.connection.dialect.sets_log_level:
            await self.connection.ask(SetLogLevel(level))

    @asynccontextmanager
    async def listen(self, *uris: str, lists: bool) -> AsyncIterator[Listener]:
        """Yield a listener for changes, which is subscribed while the context lasts."""
        with self._changes.listen(change_filter(SubscriptionFilter(lists, lists, lists, uris))) as listener:
            await self.subscriptions.add(*uris, lists=lists)
            try:
                yield listener
            finally:
                await self.subscriptions.remove(*uris, lists=lists)

    async def handle(self, notification: Notification | TaskStatus, subscription: RequestId | None) -> None:
        """Handle a notification; `subscription` is the request that subscribed to it, if the server says."""
        if isinstance(notification, TaskStatus):
            self.tasks.notice(notification)
        elif isinstance(notification, Acknowledged):
            if self.subscriptions.acknowledge(subscription, notification.interests):
                await self._assume_changes()
            self.tasks.acknowledge(subscription, notification.interests)
        elif isinstance(notification, ListChanged | ResourceUpdated):
            await self._handle_change(notification)
        elif isinstance(notification, Log) and self._on_log is not None:
            await deliver(self._on_log, notification)
        elif isinstance(notification, Progress) and self.on_progress is not None:
            await deliver(self.on_progress, notification)

    async def _handle_change(self, change: Change) -> None:
        if isinstance(change, ListChanged):
            self._catalog.evict(change.kind)
        self._changes.publish(change)
        if self._on_change is not None:
            await deliver(self._on_change, change)

    async def _assume_changes(self) -> None:
        """Report a change of everything that the client listens to: it may have missed some."""
        self._catalog.evict()
        for change in self.subscriptions.all_changes():
            await self._handle_change(change)

    async def _open_stream(self) -> None:
        if self._needs_stream and self.connection.dialect.has_sessions:
            await self.connection.listen()

    async def _try(self, request: Coroutine[Any, Any, None]) -> None:
        """Send a request that a server may refuse; a refusal is logged."""
        try:
            await request
        except RequestError as error:
            logger.warning("%s refused: %s", self.connection.channel.peer, error)
