"""Writes the questions of tasks to others: the extension `dev.antiphon/inbox`.

2026-07-28 and the draft have it; docs/reference/inbox.md is its specification. The questions themselves are
written as the dialect writes them in a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.model.inbox import InboxNews, InboxPage, InboxQuestion
from antiphon.model.request import AnswerInbox, ListenInbox, ListInbox, RequestId
from antiphon.wire.server.tasks import timestamp

__all__ = ["INBOX", "INBOX_METHODS", "INBOX_NEWS", "inbox_page", "news_params"]

INBOX = "dev.antiphon/inbox"
INBOX_NEWS = "notifications/dev.antiphon/inbox"

INBOX_METHODS: Mapping[str, type[Any]] = {
    "dev.antiphon/inbox/list": ListInbox,
    "dev.antiphon/inbox/answer": AnswerInbox,
    "dev.antiphon/inbox/listen": ListenInbox,
}

_LAST_MILLISECOND = 253_402_300_799_999
"""The end of the year 9999, after which no timestamp can be written."""


def inbox_page(dialect: Any, page: InboxPage) -> dict[str, Any]:
    """Return the result object of a page of questions."""
    value: dict[str, Any] = {"items": [_item(dialect, item) for item in page.items]}
    if page.next_cursor is not None:
        value["nextCursor"] = page.next_cursor
    return value


def news_params(dialect: Any, news: InboxNews, request_id: RequestId | None) -> dict[str, Any]:
    """Return the parameters of the notification about a question, for the request that listens."""
    value: dict[str, Any] = {"requestId": request_id, "kind": news.kind}
    if news.task_id:
        value.update(taskId=news.task_id, key=news.key)
    if news.item is not None:
        value["item"] = _item(dialect, news.item)
    return value


def _item(dialect: Any, item: InboxQuestion) -> dict[str, Any]:
    method, params = dialect.ask(item.question)
    value: dict[str, Any] = {
        "taskId": item.task_id,
        "key": item.key,
        "tool": item.tool,
        "owner": item.owner,
        "request": {"method": method, "params": params},
        "to": item.to,
        "askedAt": timestamp(item.asked),
        "approvals": item.approvals,
        "answered": item.answered,
        "reminded": item.reminded,
    }
    if item.people:
        value["people"] = item.people
    if item.deadline is not None and item.deadline <= _LAST_MILLISECOND:
        value["deadline"] = timestamp(item.deadline)
    return value
