"""A task as its caller sees it, the same in every protocol version."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.notification import Progress
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
"""Every status, and whether a task with it has finished."""


class TaskStatus(msgspec.Struct, frozen=True):
    """The status of a task. Durations are in seconds."""

    id: str
    """The id of the task; empty if the server returned a result at once and created no task."""
    status: Status
    """`"working"`, `"input_required"`, `"completed"`, `"failed"` or `"cancelled"`."""
    message: str | None = None
    """A description of the current state, for people."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ttl: float | None = None
    """How long after its creation the server keeps the task; `None` means for ever, or until it has ended and
    the server has decided."""
    poll_interval: float | None = None
    """How long a caller should wait between two polls."""
    questions: Mapping[str, Question] = {}
    """The open questions, by key, in protocol versions that send them with the status."""
    result: Result | None = None
    """The result, in protocol versions that send it with the status."""
    error: Fault | None = None
    """The JSON-RPC error of a failed task, in protocol versions that send it with the status."""
    progress: Progress | None = None
    """The progress that `message` describes, if the server sends the numbers too.

    If the task has ended, it is the last progress that the tool reported.
    """

    @property
    def has_ended(self) -> bool:
        """Whether the task has finished. A finished task never changes."""
        return STATUSES[self.status]

    @property
    def visible_state(self) -> tuple[Any, ...]:
        """The parts of the status that `TaskHandle.updates` compares."""
        return self.status, self.message, tuple(self.questions.items())


class TaskStatuses(msgspec.Struct, frozen=True):
    """One page of a caller's tasks."""

    tasks: tuple[TaskStatus, ...]
    next_cursor: str | None = None
