"""The stream of news of an inbox: what came, what is known, and what the program has not read.

Owns the questions that the server has told of. A new stream tells of every open question again, and a program
hears only of those that have changed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal, Self

from antiphon.client.inbox.items import InboxChange, InboxItem
from antiphon.errors import AntiphonError
from antiphon.model.inbox import InboxNews, InboxQuestion
from antiphon.model.request import Request
from antiphon.model.segment import StreamPart

if TYPE_CHECKING:
    from antiphon.client.inbox.requests import InboxRequests

__all__ = ["InboxChanges", "InboxStream"]

logger = logging.getLogger("antiphon.client")

_MAX_KNOWN = 10_000
"""How many open questions a stream keeps. Further ones are ignored."""


class InboxChanges:
    """News of the questions that you can answer: iterate over it.

    It begins with all questions that are open, as `asked`. It holds one change of each question that you have
    not read.
    """

    def __init__(self, stream: InboxStream) -> None:
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InboxChange:
        return await self._stream.next()


class InboxStream:
    """The sink of the requests that listen, one after the other."""

    def __init__(self, requests: InboxRequests) -> None:
        self._requests = requests
        self._known: dict[tuple[str, str], InboxQuestion] = {}
        self._sent: set[tuple[str, str]] = set()
        self._unread: dict[tuple[str, str], InboxChange] = {}
        self._error: AntiphonError | None = None
        self._news = asyncio.Event()
        self.is_current = asyncio.Event()
        """Set when the present request has brought all open questions."""

    # Taking out

    async def next(self) -> InboxChange:
        """Return the next change; raises the error of `close` after the last one."""
        while not self._unread:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        return self._unread.pop(next(iter(self._unread)))

    # Putting in

    def begin(self) -> None:
        """Expect every question again, because a new request begins."""
        self._sent.clear()
        self.is_current.clear()

    def close(self, error: AntiphonError) -> None:
        """Raise an error after the unread changes."""
        self._error = error
        self._news.set()

    def stops_with(self, request: Request) -> bool:
        """Return whether the server should stop with this request."""
        return True

    def take(self, part: StreamPart | InboxNews) -> None:
        """Receive news."""
        if not isinstance(part, InboxNews):  # for another request
            return
        if part.kind == "current":
            for place in [place for place in self._known if place not in self._sent]:
                self._remove(place)
            self._sent.clear()
            self.is_current.set()
        elif part.kind == "gone":
            self._remove((part.task_id, part.key))
        elif part.item is not None:
            self._add(part.kind, part.item)

    def fail(self, error: AntiphonError) -> None:
        """Receive the error for news that could not be read. The other questions do not depend on it."""
        logger.debug("Cannot read news of the inbox: %s", error)

    def _add(self, kind: Literal["asked", "reminded", "changed"], asked: InboxQuestion) -> None:
        place = asked.task_id, asked.key
        known = self._known.get(place)
        if known is None and len(self._known) >= _MAX_KNOWN:
            return
        self._sent.add(place)
        if known == asked:
            return
        unread = self._unread.get(place)
        if known is None or (unread is not None and unread.kind == "asked"):
            kind = "asked"  # the program has not read that it was asked
        elif kind == "asked":  # a new stream tells of a question that has changed meanwhile
            kind = "reminded" if asked.reminded > known.reminded else "changed"
        self._known[place] = asked
        self._put(place, InboxChange(kind, InboxItem(self._requests, asked)))

    def _remove(self, place: tuple[str, str]) -> None:
        known, unread = self._known.pop(place, None), self._unread.pop(place, None)
        if known is not None and (unread is None or unread.kind != "asked"):
            self._put(place, InboxChange("gone", InboxItem(self._requests, known)))

    def _put(self, place: tuple[str, str], change: InboxChange) -> None:
        self._unread[place] = change
        self._news.set()
