"""The segments that a run emits, on their way into the result, onto the caller's stream or into a task's log.

Owns the numbers of segments, the batches and the bound on segments that wait. Segments that come slowly are
sent at once; segments that come fast are sent in batches. A function that runs again emits the same segments
again, and those are not sent a second time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import Failure
from antiphon.model.content import Audio, Block, Image, Text

__all__ = ["LoggedOutput", "OutputStream", "StreamedOutput", "WriteSegments"]

logger = logging.getLogger("antiphon")

WriteSegments: TypeAlias = Callable[[int, Sequence[Block]], Awaitable[None]]
"""Writes segments; the number is the one of the first segment."""

_BATCH_INTERVAL_SECONDS = 0.002
"""How long segments are collected before they are sent together."""
_MAX_BATCH_SEGMENTS = 256
"""The largest number of segments in a batch."""
_MAX_BATCH_BYTES = 256 * 1024
"""The largest size of a batch."""


class OutputStream:
    """Collects the segments of an answer, for a caller that gets them with the result."""

    replays: bool = False
    """Whether an earlier run has emitted the next segment already."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: list[Block] = []
        self._size = 0
        self.sent = 0
        """How many segments the caller has received."""

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Add segments; raises `Failure` if the answer becomes too large."""
        for block in blocks:
            self._size += _size(block)
            self._blocks.append(block)
        if self._size > self._max_bytes:
            raise Failure(
                f"The answer exceeds the limit of {self._max_bytes} bytes. "
                "Call the tool as a task, or ask for less."
            )

    @property
    def has_emitted(self) -> bool:
        """Whether the run has emitted a segment."""
        return bool(self._blocks or self.sent)

    @property
    def size(self) -> int:
        """The size of the segments that the run has emitted, about, in bytes."""
        return self._size

    async def flush(self) -> None:
        """Send the segments that wait to be sent."""

    async def restart(self) -> None:
        """Start numbering again, because the function runs again."""
        await self.flush()
        self._blocks, self._size = [], 0

    async def remaining(self) -> list[Block]:
        """Return the segments that the result has to include: those that are in no log."""
        return self._blocks

    def emitted(self) -> list[Block]:
        """Return all segments so far, for a log that starts now."""
        return list(self._blocks)


class StreamedOutput(OutputStream):
    """Sends the segments of an answer to the caller as they come, and keeps them for the final response."""

    def __init__(self, max_bytes: int, write: WriteSegments, *, sent: int) -> None:
        super().__init__(max_bytes)
        self._write_segments = write
        self.sent = sent
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._last_sent_at = float("-inf")
        self._sent_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Add segments, and send them: at once if the last batch was some time ago, else soon."""
        await super().emit(blocks)
        now = self._loop.time()
        if now - self._last_sent_at >= _BATCH_INTERVAL_SECONDS:
            await self.flush()
        elif (
            len(self._blocks) - self.sent >= _MAX_BATCH_SEGMENTS
            or self._size - self._sent_bytes >= _MAX_BATCH_BYTES
        ):
            await self.flush()
            await asyncio.sleep(0)  # a function that never awaits must not block the event loop
        elif self._timer is None and len(self._blocks) > self.sent:
            self._timer = self._loop.call_at(self._last_sent_at + _BATCH_INTERVAL_SECONDS, self._on_timer)

    async def flush(self) -> None:
        """Send the segments that wait to be sent."""
        async with self._lock:
            first, blocks = self.sent + 1, self._blocks[self.sent :]
            self._sent_bytes = self._size
            if blocks:
                self.sent += len(blocks)
                await self._write_segments(first, blocks)
                self._last_sent_at = self._loop.time()

    async def remaining(self) -> list[Block]:
        """Return all segments. The dialect decides whether the final response repeats those already sent."""
        self._cancel_timer()
        self._closed = True
        async with self._lock:  # a batch that is being sent counts as sent
            return self._blocks

    def _on_timer(self) -> None:
        self._timer = None
        self._sending = self._loop.create_task(self._flush_in_background())

    async def _flush_in_background(self) -> None:
        try:
            if not self._closed:  # the final response includes the rest
                await self.flush()
        except Exception as error:  # the caller is gone; the transport notices that itself
            logger.debug("Cannot send segments to the caller: %s", error)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LoggedOutput(OutputStream):
    """Writes the segments of a task into its log. Readers get every segment from the log."""

    def __init__(
        self,
        write: WriteSegments,
        *,
        logged: int,
        emitted: int = 0,
        max_bytes: float = float("inf"),
        emitted_bytes: int = 0,
    ) -> None:
        super().__init__(0)
        self._max_total = max_bytes
        self._total = emitted_bytes
        self._write_segments = write
        self.logged = logged
        self._number = emitted
        self._loop = asyncio.get_running_loop()
        self._scheduled: asyncio.Handle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._closing = False

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Add segments; wait while too many of them are not in the log yet.

        Raises `Failure` if the task has emitted too much.
        """
        self._raise_failure()  # after a failed write, further segments would leave a gap in the log
        before = self._number
        for block in blocks:
            size = _size(block)
            if self._total + size > self._max_total:
                raise Failure(
                    f"The task has emitted {self._total} bytes, and may emit at most {self._max_total}: "
                    "ask for less."
                )
            self._total += size
            self._number += 1
            if self._number > self.logged + len(self._blocks):
                self._blocks.append(block)
                self._size += size
        if self._blocks and self._writing is None and self._scheduled is None:
            # Not at once: a function that does not await may emit more segments, or return, right after this.
            self._scheduled = self._loop.call_soon(self._start_writing)
        while len(self._blocks) >= _MAX_BATCH_SEGMENTS or self._size >= _MAX_BATCH_BYTES:
            await self._wait_for_write()
        if (
            self._number <= self.logged
            and self._number // _MAX_BATCH_SEGMENTS > before // _MAX_BATCH_SEGMENTS
        ):
            await asyncio.sleep(0)  # a function that emits the same again must not hold the event loop
        self._raise_failure()

    @property
    def replays(self) -> bool:  # type: ignore[override]
        """Whether an earlier run has emitted the next segment already."""
        return self._number < self.logged

    @property
    def has_emitted(self) -> bool:
        """Whether the run has emitted a segment."""
        return self._number > 0

    async def flush(self) -> None:
        """Wait until every segment is in the log."""
        while self._blocks or self._writing is not None:
            await self._wait_for_write()
        self._raise_failure()

    async def restart(self) -> None:
        """Start numbering again, because the function runs again; the log keeps its segments."""
        await self.flush()
        self._number = self._total = 0

    async def remaining(self) -> list[Block]:
        """Return the segments that are not in the log yet, to be written together with the result."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        self._closing = True
        while self._writing is not None:
            await asyncio.wait({self._writing})
        self._raise_failure()
        rest, self._blocks, self._size = self._blocks, [], 0
        return rest

    def emitted(self) -> list[Block]:
        """Return nothing: the segments are in the log."""
        return []

    async def _wait_for_write(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._start_writing()
        if self._writing is not None:
            await asyncio.wait({self._writing})
        self._raise_failure()

    def _start_writing(self) -> None:
        self._scheduled = None
        if self._blocks and self._writing is None:
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        blocks = self._blocks
        self._blocks, self._size = [], 0
        first, self.logged = self.logged + 1, self.logged + len(blocks)
        try:
            await self._write_segments(first, blocks)
        except Exception as error:
            self._failure = error
        finally:
            self._writing = None
            if self._failure is None and not self._closing:
                self._start_writing()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _size(block: Any) -> int:
    """Return the approximate size of a block on the wire, in bytes; raises `ValueError` for invalid text."""
    if isinstance(block, Text):
        text = block.text
        return 32 + (len(text) if text.isascii() else len(text.encode()))
    if isinstance(block, Image | Audio):
        return len(block.data) + 64
    if isinstance(block, dict):
        return len(msgspec.json.encode(block))
    resource = getattr(block, "resource", None)
    return len(getattr(resource, "text", "") or getattr(resource, "blob", "")) + 256
