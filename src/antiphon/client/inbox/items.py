"""A question of somebody else's task, as a program sees it, and news of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from antiphon.model.inbox import InboxQuestion
from antiphon.model.question import Elicit, Question
from antiphon.wire.questions import accept, refuse

if TYPE_CHECKING:
    from antiphon.client.inbox.requests import InboxRequests

__all__ = ["InboxChange", "InboxItem"]


class InboxItem:
    """A question of somebody else's task, which you can answer."""

    __slots__ = ("_asked", "_requests")

    def __init__(self, requests: InboxRequests, asked: InboxQuestion) -> None:
        self._requests = requests
        self._asked = asked

    def __repr__(self) -> str:
        return f"InboxItem({self.task_id!r}, {self.key!r})"

    @property
    def task_id(self) -> str:
        """The id of the task that asks."""
        return self._asked.task_id

    @property
    def key(self) -> str:
        """The key of the question in its task."""
        return self._asked.key

    @property
    def tool(self) -> str:
        """The name of the tool that asks."""
        return self._asked.tool

    @property
    def owner(self) -> str:
        """The id of the principal that called the tool."""
        return self._asked.owner

    @property
    def question(self) -> Question:
        """The question: an `Elicit` with a form, or an `OpenUrl` with the address of a page."""
        return self._asked.question

    @property
    def message(self) -> str:
        """The text of the question."""
        return str(getattr(self.question, "message", ""))

    @property
    def to(self) -> tuple[str, ...]:
        """The groups and scopes whose members can answer."""
        return self._asked.to

    @property
    def people(self) -> tuple[str, ...]:
        """The ids of the principals who can answer, besides the members of `to`."""
        return self._asked.people

    @property
    def asked_at(self) -> datetime | None:
        """When the question was asked, if the server says so."""
        return _moment(self._asked.asked or None)

    @property
    def deadline(self) -> datetime | None:
        """When the question is given up; `None` for never."""
        return _moment(self._asked.deadline)

    @property
    def approvals(self) -> int:
        """How many different people have to answer."""
        return self._asked.approvals

    @property
    def answered(self) -> int:
        """How many of them have answered."""
        return self._asked.answered

    @property
    def reminded(self) -> int:
        """How often those who can answer were reminded."""
        return self._asked.reminded

    async def answer(self, value: Any = None) -> None:
        """Answer with the content of the form, by field; a form with one field also takes its value.

        A question with an address takes no value: you have been there. The same answer may be repeated.
        Raises `ValueError` for a value that is no content, and `InvalidParams` if it does not fit the form,
        or if you can no longer answer: somebody else has, or the question was given up.
        """
        await self._requests.answer(self, accept(_content(self.question, value)))

    async def decline(self) -> None:
        """Decline. That answers the question, also if several people have to; raises `InvalidParams`."""
        await self._requests.answer(self, refuse("decline"))


class InboxChange(msgspec.Struct, frozen=True):
    """News of a question."""

    kind: Literal["asked", "reminded", "changed", "gone"]
    """Why there is news. `gone` means that the question was answered, given up or cancelled; `changed` that
    somebody else has answered too, or that the question has other words."""
    item: InboxItem
    """The question; one that is gone, as it was last."""


def _content(question: Question, value: Any) -> Mapping[str, Any] | None:
    """Return the content of a form for a value; `None` for a question with an address."""
    if not isinstance(question, Elicit):
        return None
    if isinstance(value, Mapping):
        return dict(value)
    properties = question.schema.get("properties")
    fields = list(properties) if isinstance(properties, Mapping) else []
    if value is None and not fields:
        return {}
    if len(fields) != 1:
        raise ValueError(
            f"The form has the fields {', '.join(map(str, fields))}: answer with a value for each, by name."
        )
    return {fields[0]: value}


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    return None
