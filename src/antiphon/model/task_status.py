"""A task as its caller sees it: what a server says of it, whichever version it says it in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.outcome import Result
from antiphon.model.question import Question
from antiphon.model.task import Fault

__all__ = ["STATUSES", "Status", "TaskStatus", "TaskStatuses"]

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

STATUSES: Mapping[str, bool] = {
    "working": False,
    "input_required": False,
    "completed": True,
    "failed": True,
    "cancelled": True,
}
"""Every status there is, and whether it is the last one of its task."""


class TaskStatus(msgspec.Struct, frozen=True):
    """How a task stands. Spans of time are in seconds."""

    id: str
    """Empty where the server answered at once and made no task."""
    status: Status
    message: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ttl: float | None = None
    """How long the server keeps it from its creation on; `None` for ever."""
    poll_interval: float | None = None
    """How long the server wants to be left in peace before it is asked again."""
    questions: Mapping[str, Question] = {}
    """The open questions by key, on versions that tell them."""
    result: Result | None = None
    """What it gave, on versions that tell it with the status."""
    error: Fault | None = None
    """The JSON-RPC error that it ended with, on versions that tell it with the status."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen."""
        return STATUSES[self.status]

    @property
    def shown(self) -> tuple[Any, ...]:
        """What makes it different from the one before, in the eyes of a caller."""
        return self.status, self.message, tuple(self.questions.items())


class TaskStatuses(msgspec.Struct, frozen=True):
    """Some of a caller's tasks."""

    tasks: tuple[TaskStatus, ...]
    next_cursor: str | None = None
