"""Handles the requests of those who answer the questions of other people's tasks: list, answer and listen.

`Inbox` owns the rights. A listener is sent each question that is open, and then what changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.model.inbox import InboxNews, InboxPage, InboxQuestion, NewsKind
from antiphon.model.outcome import DONE, Done
from antiphon.model.request import AnswerInbox, ListenInbox, ListInbox
from antiphon.runtime.budget import Account, MemoryBudget
from antiphon.runtime.execution.call import Call
from antiphon.runtime.tasks.inbox import Inbox
from antiphon.runtime.tasks.inbox_feed import InboxFeed, InboxListener

__all__ = ["INBOX_REQUESTS", "InboxHandlers"]

INBOX_REQUESTS: frozenset[type[Any]] = frozenset((ListInbox, AnswerInbox, ListenInbox))

LIST_AGAIN_SECONDS = 30.0
"""How often a listener reads all questions, and asks again in which groups the principal is, busy or not.

Not a setting: it only matters if messages of other processes are lost, or if somebody leaves a group.
"""
_STORE_RETRY_SECONDS = 1.0
"""How long a listener pauses after the store did not respond."""
MAX_SHOWN = 1000
"""Of how many open questions a listener is told. The list has them all."""
_SHOWN_BYTES = 400
"""The memory of a question that a listener was told of, about."""


class InboxHandlers:
    """The handlers of one server, by type of request."""

    def __init__(self, inbox: Inbox, feed: InboxFeed, budget: MemoryBudget) -> None:
        self._inbox = inbox
        self._feed = feed
        self._budget = budget
        self.handlers: Mapping[type[Any], Callable[[Call[Any]], Awaitable[Any]]] = {
            ListInbox: self._list,
            AnswerInbox: self._answer,
            ListenInbox: self._listen,
        }

    async def _list(self, call: Call[ListInbox]) -> InboxPage:
        return await self._inbox.list(call.principal, call.request.cursor)

    async def _answer(self, call: Call[AnswerInbox]) -> Done:
        request = call.request
        await self._inbox.answer(call.principal, request.task_id, request.key, request.response)
        return DONE

    async def _listen(self, call: Call[ListenInbox]) -> Done:
        call.work.deadline = float("inf")
        account = Account(self._budget, call.principal.share)
        try:
            names, until = await self._inbox.names(call.principal), call.principal.expires_at
            with self._feed.listening(call.principal.id, names, until=until) as listener:
                await _Listening(self._inbox, call, account, listener).run()
        finally:
            account.close()
        return DONE


class _Listening:
    """One listener, with the questions that it was told of."""

    def __init__(
        self, inbox: Inbox, call: Call[ListenInbox], account: Account, listener: InboxListener
    ) -> None:
        self._inbox = inbox
        self._listener = listener
        self._call = call
        self._account = account
        self._shown: dict[tuple[str, str], tuple[int, int]] = {}
        """How often each question was reminded of, and a hash of it, by task and key."""

    async def run(self) -> None:
        """Tell the listener of questions until the server stops, or the caller must authenticate again."""
        await self._retrying(self._show_all)
        await self._call.caller.notify(InboxNews("current"))
        list_at = time.monotonic() + LIST_AGAIN_SECONDS
        while True:
            changed = await self._listener.changed(max(list_at - time.monotonic(), 0.0))
            if self._listener.is_closed:
                return
            if changed is None or time.monotonic() >= list_at:
                # The groups of a principal may have changed.
                self._listener.names = await self._inbox.names(self._call.principal)
                await self._retrying(self._show_all)
                list_at = time.monotonic() + LIST_AGAIN_SECONDS
            for id in changed or ():  # also after a list, which has no task that runs at the moment
                await self._retrying(self._show_task, id)

    async def _retrying(self, work: Callable[..., Awaitable[None]], *args: str) -> None:
        """Repeat some work until the store responds."""
        while True:
            try:
                return await work(*args)
            except StoreUnavailable:
                await asyncio.sleep(_STORE_RETRY_SECONDS)

    async def _show_all(self) -> None:
        """Tell of everything that has changed since the last time."""
        not_listed, cursor = set(self._shown), None
        while True:
            page = await self._inbox.list(self._call.principal, cursor, names=self._listener.names)
            for item in page.items:
                not_listed.discard((item.task_id, item.key))
                await self._show(item)
            cursor = page.next_cursor
            if cursor is None or len(self._shown) >= MAX_SHOWN:
                break
        for id in {task_id for task_id, _ in not_listed}:
            await self._show_task(id)  # a task that runs at the moment is not listed, and may still ask

    async def _show_task(self, id: str) -> None:
        """Tell of what has changed in one task."""
        items = await self._inbox.questions_of(self._call.principal, id, self._listener.names)
        for item in items:
            await self._show(item)
        still_asked = {item.key for item in items}
        for task_id, key in tuple(self._shown):
            if task_id == id and key not in still_asked:
                del self._shown[task_id, key]
                self._account.release(_SHOWN_BYTES)
                await self._call.caller.notify(InboxNews("gone", task_id, key))

    async def _show(self, item: InboxQuestion) -> None:
        place, state = (item.task_id, item.key), (item.reminded, hash(msgspec.json.encode(item)))
        before = self._shown.get(place)
        if state == before:
            return
        kind: NewsKind = "changed"
        if before is None:
            if len(self._shown) >= MAX_SHOWN or not self._account.try_reserve(_SHOWN_BYTES):
                return
            kind = "asked"
        elif item.reminded > before[0]:
            kind = "reminded"
        self._shown[place] = state
        await self._call.caller.notify(InboxNews(kind, *place, item))
