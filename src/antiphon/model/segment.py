"""Segments: the numbered pieces of a tool's output, which the server sends while the tool runs.

The first segment has the number 1. A number always belongs to the same content: for a task, however often
the task is read; for a call without a task, through all its rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.model.content import Block, Text
from antiphon.model.inbox import InboxNews
from antiphon.model.notification import Notification
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.task import Task, TaskChanged
from antiphon.model.task_status import TaskStatus

__all__ = ["MODES", "CallerMessage", "ResponseMode", "Segment", "SegmentPage", "Segments"]
__all__ += ["StreamEnd", "StreamPart"]

ResponseMode: TypeAlias = Literal["immediate", "streaming", "task"]
MODES: tuple[ResponseMode, ...] = ("immediate", "streaming", "task")
"""The response modes of a call that may become a task, in the order of preference."""


class Segment(msgspec.Struct, frozen=True):
    """One piece of a tool's output, as a client receives it."""

    number: int
    """The number of the segment. The first one has the number 1."""
    block: Block
    """The content of the segment."""

    @property
    def text(self) -> str:
        """The text of the segment; empty if the block is not text."""
        return self.block.text if isinstance(self.block, Text) else ""


# Written by servers


class Segments(msgspec.Struct, frozen=True):
    """Segments of a stream that continues. The first of them has the number `first`."""

    first: int
    blocks: Sequence[Any]
    task_id: str | None = None
    task: Task | None = None
    """The new task, sent with its first segments."""


CallerMessage: TypeAlias = Notification | TaskChanged | Segments | InboxNews
"""A message that the server can send to a caller while its call runs."""


class SegmentPage(msgspec.Struct, frozen=True):
    """Segments of a task, and the state of the task after them."""

    first: int
    blocks: Sequence[Any]
    task_id: str
    is_complete: bool
    """Whether the task has no further segments."""
    is_error: bool = False
    end: Result | None = None
    """The result of the task. The part of its content that is not in `blocks` was sent before."""
    stopped: InputRequired | None = None
    """The questions that the task waits for."""
    task: Task | None = None
    """The task, if the caller does not know it yet, or if it was cancelled."""
    message: str | None = None
    """Why the task ended without a result."""


class StreamEnd:
    """The result of a streamed call. Its first `sent` blocks were sent as segments already."""

    __slots__ = ("result", "sent")

    def __init__(self, result: Result, sent: int) -> None:
        self.result = result
        self.sent = sent


# Read by clients


class StreamPart(msgspec.Struct, frozen=True):
    """The content of one message of a stream."""

    segments: tuple[Segment, ...]
    task_id: str | None = None
    task: TaskStatus | None = None
    is_complete: bool = False
    end: Result | None = None
    """The result in the last message. Its content holds only the blocks that are not segments."""
    stopped: InputRequired | None = None
    """The questions that the task waits for."""
