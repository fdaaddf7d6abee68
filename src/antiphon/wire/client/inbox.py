"""Reads the questions of tasks to others for a client: the extension `dev.antiphon/inbox`.

A question that this client cannot read is left out, so that it does not hide the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from antiphon.errors import BadAnswer
from antiphon.model.inbox import InboxNews, InboxPage, InboxQuestion, NewsKind
from antiphon.model.question import Elicit, OpenUrl
from antiphon.model.request import RequestId
from antiphon.wire.client.tasks import moment
from antiphon.wire.questions import read_question

__all__ = ["news", "page"]

Fields = Mapping[str, Any]

_KINDS = get_args(NewsKind)


def page(fields: Fields) -> InboxPage:
    """Return one page of questions; raises `BadAnswer`."""
    items, cursor = fields.get("items"), fields.get("nextCursor")
    if not isinstance(items, list):
        raise BadAnswer("The server sent a page of an inbox without 'items'.")
    read = (_question(item) for item in items)
    return InboxPage(
        tuple(item for item in read if item is not None), cursor if isinstance(cursor, str) else None
    )


def news(params: Fields) -> tuple[RequestId | None, InboxNews]:
    """Return the news in a notification, and the id of the request that listens; raises `BadAnswer`."""
    request_id: Any = params.get("requestId")
    kind: Any = params.get("kind")
    if kind not in _KINDS:
        raise BadAnswer("The server sent news of an inbox that this client does not know.")
    item = _question(params.get("item")) if kind not in ("gone", "current") else None
    task_id, key = params.get("taskId", ""), params.get("key", "")
    if not isinstance(task_id, str) or not isinstance(key, str):
        raise BadAnswer("The server sent news of an inbox without the task and the key of the question.")
    if item is not None:
        task_id, key = item.task_id, item.key
    return request_id if isinstance(request_id, str | int) else None, InboxNews(kind, task_id, key, item)


def _question(fields: Any) -> InboxQuestion | None:
    """Return a question; `None` if it cannot be read."""
    if not isinstance(fields, dict):
        return None
    texts = {name: fields.get(name, "") for name in ("taskId", "key", "tool", "owner")}
    if not all(isinstance(text, str) for text in texts.values()) or not texts["taskId"] or not texts["key"]:
        return None
    try:
        question = read_question(texts["key"], fields.get("request"))
    except BadAnswer:
        return None
    if not isinstance(question, Elicit | OpenUrl):
        return None
    return InboxQuestion(
        task_id=texts["taskId"],
        key=texts["key"],
        tool=texts["tool"],
        owner=texts["owner"],
        question=question,
        to=_names(fields.get("to")),
        people=_names(fields.get("people")),
        asked=_milliseconds(fields.get("askedAt")) or 0,
        deadline=_milliseconds(fields.get("deadline")),
        approvals=_count(fields.get("approvals"), 1),
        answered=_count(fields.get("answered"), 0),
        reminded=_count(fields.get("reminded"), 0),
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _milliseconds(value: Any) -> int | None:
    found = moment(value)
    return None if found is None else round(found.timestamp() * 1000)


def _count(value: Any, default: int) -> int:
    return value if type(value) is int and value >= default else default
