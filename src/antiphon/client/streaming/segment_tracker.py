"""Merges the segments of one stream, by whichever way they come: in order, each once, in bounded memory.

Pure: it waits for nothing and asks for nothing, so whoever feeds it is never held up. What to do about a gap
is for those who follow the stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.errors import BadAnswer
from antiphon.model.content import Block, Text
from antiphon.model.outcome import Result
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.wire import jsonrpc

__all__ = ["SegmentTracker", "settled"]

_OVERHEAD = 128
"""Bytes that a message and a segment count for besides what is in them: empty ones are bounded too."""


class SegmentTracker:
    """The segments of one stream after the number `after`, of which `limit` bytes are taken in all."""

    def __init__(self, limit: int, after: int = 0) -> None:
        self.last = after
        """The last number up to which nothing is missing."""
        self.task_id: str | None = None
        self._after = after
        self._limit = limit
        self._weight = 0
        self._blocks: list[Block] = []
        self._early: dict[int, Segment] = {}

    @property
    def missing(self) -> int | None:
        """The number that later ones wait for; `None` where none does."""
        return self.last + 1 if self._early else None

    @property
    def is_whole(self) -> bool:
        """Whether what it has begins with the first segment there is."""
        return self._after == 0

    def own(self, task_id: str) -> None:
        """Note whose segments these are; raises `BadAnswer` if they were another task's so far."""
        if self.task_id is None:
            self.task_id = task_id
        elif task_id != self.task_id:
            raise BadAnswer(
                f"The server sent segments of the task {task_id} on the stream of {self.task_id}."
            )

    def take(self, part: StreamPart) -> list[Segment]:
        """Take in what came: the segments that can be handed on now, in order.

        Raises `BadAnswer` for those of another task, and for more of them than it takes.
        """
        if part.task_id is not None:
            self.own(part.task_id)
        self._weight += _OVERHEAD + sum(map(_weight, part.segments))
        if self._weight > self._limit:
            raise BadAnswer(
                f"The server has sent more than {self._limit} bytes of segments. "
                "If that is as it should be, take more with max_message=."
            )
        for segment in part.segments:
            if segment.number > self.last:
                self._early.setdefault(segment.number, segment)
        return self._ripe()

    def settle(self, content: Sequence[Block]) -> list[Segment]:
        """Take in the whole content, which is there at last: the segments that had not come.

        Raises `BadAnswer` where later ones than it has did come.
        """
        new = [Segment(number, block) for number, block in enumerate(content[self.last :], self.last + 1)]
        self._hand_on(new)
        self._early = {number: early for number, early in self._early.items() if number > self.last}
        new += self._ripe()
        self.check()
        return new

    def check(self) -> None:
        """Raise `BadAnswer` where one is missing."""
        if self.missing is not None:
            raise BadAnswer(
                f"The server has sent segments, but never the one with the number {self.missing}."
            )

    def merged(self, end: Result) -> Result:
        """The whole result: all segments, and what the last message said besides."""
        content = blocks = tuple(self._blocks)
        if end.content:  # the whole, or only the words that it failed with
            goes_on = end.is_error and end.content[: len(blocks)] != blocks
            content = (*blocks, *end.content) if goes_on else end.content
        merged = Result(content, meta=end.meta, is_error=end.is_error)
        merged.data, merged.structured, merged.boxed = end.data, end.structured, end.boxed
        return merged

    def _ripe(self) -> list[Segment]:
        ripe: list[Segment] = []
        number = self.last + 1
        while (segment := self._early.pop(number, None)) is not None:
            ripe.append(segment)
            number += 1
        self._hand_on(ripe)
        return ripe

    def _hand_on(self, segments: Sequence[Segment]) -> None:
        self._blocks += [segment.block for segment in segments]
        self.last += len(segments)


def settled(outcome: StreamPart, limit: int) -> Result | TaskStatus:
    """What a server says that sent a part of a stream to somebody who wanted none; raises `BadAnswer`."""
    if outcome.end is not None:
        tracker = SegmentTracker(limit)
        tracker.take(outcome)
        tracker.check()
        return tracker.merged(outcome.end)
    if outcome.task is not None:
        return outcome.task
    raise BadAnswer("The server sent a part of a result, and was not asked for parts.")


def _weight(segment: Segment) -> int:
    block = segment.block
    if type(block) is Text and block.annotations is None and block.meta is None:
        text = block.text
        return _OVERHEAD + (len(text) if text.isascii() else len(text.encode()))
    return _OVERHEAD + len(jsonrpc.encode(block))
