"""What a server says by itself: logs, progress and changes, who is told of them, and what it has to be told
so that it says them.

It owns the log level. A new session is told again what the old one was told.
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
    """The ears of one client; `answers` says whether it answers requests of the server's too."""

    connection: Connection
    subscriptions: Subscriptions
    tasks: TaskRequests

    def __init__(
        self,
        lists: CatalogCache,
        *,
        log_level: LogLevel | None,
        on_log: Callback | None,
        on_progress: Callback | None,
        on_change: Callback | None,
        answers: bool,
    ) -> None:
        self.log_level: LogLevel | None = log_level or ("info" if on_log is not None else None)
        self.on_progress = on_progress
        self._lists = lists
        self._level_was_set = log_level is not None
        self._on_log, self._on_change = on_log, on_change
        self._hears = on_log is not None or on_change is not None or answers
        self._changes = ChangeFeed()

    def attach(self, connection: Connection, tasks: TaskRequests) -> None:
        """Hear what comes on a connection."""
        self.connection = connection
        self.subscriptions = Subscriptions(connection, self._lists.forget)
        self.tasks = tasks

    async def settle_in(self) -> None:
        """Tell a server what it has to know to begin with."""
        await self._listen()
        if self._on_change is not None:
            await self._tolerate(self.subscriptions.add(lists=True))
        if self._level_was_set and self.log_level is not None:
            await self._tolerate(self.set_log_level(self.log_level))

    async def renew(self) -> None:
        """The session is a new one: tell it again what the old one was told."""
        await self._listen()
        await self._tolerate(self.subscriptions.renew())
        if self._level_was_set and self.log_level is not None:
            await self._tolerate(self.set_log_level(self.log_level))

    async def close(self) -> None:
        """Hear nothing more."""
        self._changes.close()
        await self.subscriptions.close()

    async def set_log_level(self, level: LogLevel) -> None:
        """From now on, hear of log messages of this level and above."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is no log level: use one of {', '.join(LOG_LEVELS)}.")
        self.log_level, self._level_was_set = level, True
        if self.connection.dialect.sets_log_level:
            await self.connection.ask(SetLogLevel(level))

    @asynccontextmanager
    async def listen(self, *uris: str, lists: bool) -> AsyncIterator[Listener]:
        """Changes, as long as the context lasts."""
        with self._changes.listen(change_filter(SubscriptionFilter(lists, lists, lists, uris))) as listener:
            await self.subscriptions.add(*uris, lists=lists)
            try:
                yield listener
            finally:
                await self.subscriptions.remove(*uris, lists=lists)

    async def notice(self, notice: Notification | TaskStatus, subscription: RequestId | None) -> None:
        """The server has said something."""
        if isinstance(notice, TaskStatus):
            self.tasks.notice(notice)
        elif isinstance(notice, Acknowledged):
            self.subscriptions.acknowledge(subscription, notice.interests)
            self.tasks.acknowledge(subscription, notice.interests)
        elif isinstance(notice, ListChanged | ResourceUpdated):
            await self._note_change(notice)
        elif isinstance(notice, Log) and self._on_log is not None:
            await deliver(self._on_log, notice)
        elif isinstance(notice, Progress) and self.on_progress is not None:
            await deliver(self.on_progress, notice)

    async def _note_change(self, change: Change) -> None:
        if isinstance(change, ListChanged):
            self._lists.forget(change.kind)
        self._changes.publish(change)
        if self._on_change is not None:
            await deliver(self._on_change, change)

    async def _listen(self) -> None:
        dialect = self.connection.dialect
        if self._hears and dialect.has_sessions:
            await self.connection.channel.listen(dialect.headers)

    async def _tolerate(self, extra: Coroutine[Any, Any, None]) -> None:
        """Do what a server need not be able to do."""
        try:
            await extra
        except RequestError as error:
            logger.warning("%s refused: %s", self.connection.channel.peer, error)
