"""The requests of a client about its inbox, and the methods of the `Client` that make them.

A stream that breaks is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from antiphon.backoff import Backoff
from antiphon.client.inbox.changes import InboxChanges, InboxStream
from antiphon.client.inbox.items import InboxItem
from antiphon.client.tasks.requests import TaskRequests
from antiphon.errors import AntiphonError, ClientError, TimedOut, Unreachable
from antiphon.model.inbox import InboxPage
from antiphon.model.request import AnswerInbox, ListenInbox, ListInbox

__all__ = ["InboxClient", "InboxRequests"]

logger = logging.getLogger("antiphon.client")

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0
_FAILURES_BEFORE_WARNING = 5
"""How often in a row the stream may break before a warning is logged."""


class InboxClient:
    """The part of the `Client` that answers the questions of other people's tasks."""

    _inbox: InboxRequests

    async def inbox(self) -> list[InboxItem]:
        """Return the questions of other people's tasks that you can answer, the oldest tasks first.

        Tools ask them with `ctx.elicit(to=…)`. An anonymous caller has none. Raises `MethodNotFound` in
        versions without an inbox, and on a server without tasks.
        """
        return await self._inbox.list()

    def listen_inbox(self) -> AbstractAsyncContextManager[InboxChanges]:
        """Iterate over news of the questions that you can answer, beginning with all that are open.

        async with client.listen_inbox() as changes:
            async for change in changes:
                if change.kind == "asked":
                    await change.item.answer(True)

        If the connection is lost, the client connects again for as long as the context lasts. Raises
        `MethodNotFound` as `inbox` does.
        """
        return self._inbox.listen()


class InboxRequests:
    """The requests of one client about its inbox."""

    def __init__(self, tasks: TaskRequests) -> None:
        self._tasks = tasks

    async def list(self) -> list[InboxItem]:
        """Return all questions that the person at the client can answer."""
        pages: AsyncIterator[InboxPage] = self._tasks.pages(ListInbox, "inbox")
        async with self._tasks.connection.deadline("the inbox"):
            return [InboxItem(self, asked) async for page in pages for asked in page.items]

    async def answer(self, item: InboxItem, response: dict[str, Any]) -> None:
        """Answer a question; retries if the connection is lost, because the server takes an answer once."""
        await self._tasks.ask(AnswerInbox(item.task_id, item.key, response))

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[InboxChanges]:
        """Yield the news of the inbox, whose stream is open while the context lasts."""
        news = InboxStream(self)
        stream = asyncio.create_task(self._keep_open(news))
        ready = asyncio.create_task(news.is_current.wait())
        try:
            timeout = self._tasks.connection.timeout
            done, _ = await asyncio.wait(
                {stream, ready}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if stream in done:
                stream.result()
            if not done:
                raise TimedOut(f"The server has not sent the inbox within {timeout:g} s.")
            yield InboxChanges(news)
        finally:
            stream.cancel()
            ready.cancel()
            await asyncio.wait({stream, ready})

    async def _keep_open(self, news: InboxStream) -> None:
        """Keep the stream open; raises the error of a stream that could not be opened the first time."""
        failures, backoff = 0, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        has_opened = False
        while True:
            news.begin()
            error: AntiphonError = ClientError("The server ended the stream of the inbox.")
            try:
                await self._tasks.connection.ask(ListenInbox(), timeout=float("inf"), sink=news)
            except AntiphonError as raised:
                error = raised
            has_opened = has_opened or news.is_current.is_set()
            if not has_opened:
                raise error
            if isinstance(error, Unreachable) and not self._tasks.connection.channel.has_streams:
                news.close(error)  # a pipe that is closed stays closed
                return
            failures = 0 if news.is_current.is_set() else failures + 1
            if failures == 0:
                backoff.reset()
            elif failures == _FAILURES_BEFORE_WARNING:
                logger.warning(
                    "The stream of the inbox from %s keeps breaking: %s The client tries to open it again.",
                    self._tasks.connection.channel.peer,
                    error,
                )
            await asyncio.sleep(backoff.next_delay())
