"""Merges the segments of one stream: in order, each once, in bounded memory.

Pure: it never waits and sends nothing. The readers of the stream decide what to do about a missing segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.errors import BadAnswer
from antiphon.model.content import Block, Text
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.wire import jsonrpc

__all__ = ["SegmentTracker", "whole_outcome"]

_OVERHEAD_BYTES = 128
"""What each message and each segment counts for besides its content, so that empty ones are bounded too."""


class SegmentTracker:
    """The segments of one stream numbered above `after`, of at most `max_bytes` in all."""

    def __init__(self, max_bytes: int, after: int = 0) -> None:
        self.last = after
        """The number of the last segment before the first missing one."""
        self.task_id: str | None = None
        self._after = after
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blocks: list[Block] = []
        self._early: dict[int, Segment] = {}

    @property
    def missing(self) -> int | None:
        """The number of the segment that later ones wait for; `None` if no segment is missing."""
        return self.last + 1 if self._early else None

    @property
    def is_whole(self) -> bool:
        """Whether the tracker started with the first segment."""
        return self._after == 0

    def set_task(self, task_id: str) -> None:
        """Record the task of the segments; raises `BadAnswer` if they belonged to another task before."""
        if self.task_id is None:
            self.task_id = task_id
        elif task_id != self.task_id:
            raise BadAnswer(
                f"The server sent segments of the task {task_id} on the stream of {self.task_id}."
            )

    def take(self, part: StreamPart) -> list[Segment]:
        """Add a part, and return the segments that can be read now, in order.

        Raises `BadAnswer` for segments of another task, and for too many bytes.
        """
        if part.task_id is not None:
            self.set_task(part.task_id)
        self._bytes += _OVERHEAD_BYTES + sum(map(_size, part.segments))
        if self._bytes > self._max_bytes:
            raise BadAnswer(
                f"The server has sent more than {self._max_bytes} bytes of segments. "
                "To accept more, raise max_message=."
            )
        for segment in part.segments:
            if segment.number > self.last:
                self._early.setdefault(segment.number, segment)
        return self._readable()

    def settle(self, content: Sequence[Block]) -> list[Segment]:
        """Take the missing segments from the whole content, and return them.

        Raises `BadAnswer` if there were segments after the end of the content.
        """
        new = [Segment(number, block) for number, block in enumerate(content[self.last :], self.last + 1)]
        self._record(new)
        self._early = {number: early for number, early in self._early.items() if number > self.last}
        new += self._readable()
        self.check()
        return new

    def check(self) -> None:
        """Raise `BadAnswer` if a segment is missing."""
        if self.missing is not None:
            raise BadAnswer(f"The server has sent later segments, but not segment {self.missing}.")

    def merged(self, end: Result) -> Result:
        """Return the whole result: all segments, and the other fields of the last message."""
        content = blocks = tuple(self._blocks)
        if end.content:  # the whole content, or only the message of an error
            is_message = end.is_error and end.content[: len(blocks)] != blocks
            content = (*blocks, *end.content) if is_message else end.content
        merged = Result(content, meta=end.meta, is_error=end.is_error)
        merged.data, merged.structured, merged.boxed = end.data, end.structured, end.boxed
        return merged

    def _readable(self) -> list[Segment]:
        readable: list[Segment] = []
        number = self.last + 1
        while (segment := self._early.pop(number, None)) is not None:
            readable.append(segment)
            number += 1
        self._record(readable)
        return readable

    def _record(self, segments: Sequence[Segment]) -> None:
        self._blocks += [segment.block for segment in segments]
        self.last += len(segments)


def whole_outcome(outcome: StreamPart, max_bytes: int) -> Result | TaskStatus | InputRequired:
    """Return the outcome in the last part of a stream that the client did not ask for; raises `BadAnswer`."""
    if outcome.end is not None:
        tracker = SegmentTracker(max_bytes)
        tracker.take(outcome)
        tracker.check()
        return tracker.merged(outcome.end)
    if outcome.task is not None:
        return outcome.task
    if outcome.stopped is not None:
        return outcome.stopped
    raise BadAnswer("The server sent a part of a result, and the client did not ask for parts.")


def _size(segment: Segment) -> int:
    block = segment.block
    if type(block) is Text and block.annotations is None and block.meta is None:
        text = block.text
        return _OVERHEAD_BYTES + (len(text) if text.isascii() else len(text.encode()))
    return _OVERHEAD_BYTES + len(jsonrpc.encode(block))
