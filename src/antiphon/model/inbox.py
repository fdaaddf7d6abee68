"""Questions to others than the callers of tasks, as those who can answer them see them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from antiphon.model.question import Question

__all__ = ["InboxNews", "InboxPage", "InboxQuestion", "NewsKind"]


class InboxQuestion(msgspec.Struct, frozen=True):
    """A question that somebody can answer. Times are in milliseconds since 1970."""

    task_id: str
    key: str
    """The key of the question in its task."""
    tool: str
    owner: str
    """The principal that owns the task; empty on a server without authentication."""
    question: Question
    to: tuple[str, ...]
    """The groups and scopes whose members can answer."""
    asked: int
    deadline: int | None = None
    """When the question is given up; `None` for never."""
    approvals: int = 1
    """How many different principals have to answer."""
    answered: int = 0
    """How many of them have answered."""
    reminded: int = 0
    """How often those who can answer were reminded."""
    people: tuple[str, ...] = ()
    """The ids of the principals who can answer, besides the members of `to`."""


class InboxPage(msgspec.Struct, frozen=True):
    """Some questions, the oldest tasks first, and the cursor of the next page."""

    items: tuple[InboxQuestion, ...]
    next_cursor: str | None = None


NewsKind: TypeAlias = Literal["asked", "reminded", "changed", "gone", "current"]
"""Why a listener hears of a question. `changed` means that somebody else answered too, or that the question
has other words now. `current` is about no question: the listener has heard of all that are open."""


class InboxNews(msgspec.Struct, frozen=True):
    """The notification about a question, for somebody who listens to an inbox."""

    kind: NewsKind
    task_id: str = ""
    key: str = ""
    item: InboxQuestion | None = None
    """The question; `None` if it is gone."""
