"""Segments: what a tool emits while it works, by number, and how a stream of them ends.

Numbers start at 1, rise by 1, and belong to one content for ever: of a task, in whatever way and however
often it is read; of an answer, through all its rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from antiphon.model.content import Block, Text
from antiphon.model.notification import Notification
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.task import Task, TaskChanged
from antiphon.model.task_status import TaskStatus

__all__ = ["MODES", "CallerMessage", "Segment", "SegmentPage", "Segments", "StreamEnd", "StreamPart"]

MODES = ("immediate", "streaming", "task")
"""The ways in which a call that may become a task can be answered, in the order of preference."""


class Segment(msgspec.Struct, frozen=True):
    """One piece of a tool's output, as a client gets it."""

    number: int
    block: Block

    @property
    def text(self) -> str:
        """Its text; empty for a picture, a sound or a resource."""
        return self.block.text if isinstance(self.block, Text) else ""


# What a server says


class Segments(msgspec.Struct, frozen=True):
    """Some segments of a stream that goes on; the first of them has the number `first`."""

    first: int
    blocks: Sequence[Any]
    task_id: str | None = None
    task: Task | None = None
    """The task that was made, told with the first of its segments."""


CallerMessage: TypeAlias = Notification | TaskChanged | Segments
"""What can be said to a caller while its call is under way."""


class SegmentPage(msgspec.Struct, frozen=True):
    """Some segments of a task, and how it stands after them."""

    first: int
    blocks: Sequence[Any]
    task_id: str
    is_complete: bool
    """Whether there will be no more."""
    is_error: bool = False
    end: Result | None = None
    """How it ended; what of its content is not in `blocks` was a segment before."""
    stopped: InputRequired | None = None
    """What it waits for."""
    task: Task | None = None
    """The task that was made, where this is the first that is said of it."""


class StreamEnd:
    """The end of an answer whose first `sent` blocks were sent as segments already."""

    __slots__ = ("result", "sent")

    def __init__(self, result: Result, sent: int) -> None:
        self.result = result
        self.sent = sent


# What a client reads


class StreamPart(msgspec.Struct, frozen=True):
    """What came of a stream in one message."""

    segments: tuple[Segment, ...]
    task_id: str | None = None
    task: TaskStatus | None = None
    is_complete: bool = False
    end: Result | None = None
    """What a last message says besides its segments; its content is there only where it is no segment."""
    stopped: InputRequired | None = None
