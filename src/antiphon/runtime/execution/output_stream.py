"""What a run emits, on its way to whoever takes it: nobody yet, the caller's stream, or a task's log.

Owns the numbers, the batches and the bound on what is emitted but not yet taken. What comes slowly is
handed on at once; what comes fast is handed on together. A run that is a replay emits again what it
emitted before, and those segments are not handed on a second time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from antiphon.errors import Failure
from antiphon.model.content import Audio, Block, Image, Text

__all__ = ["LoggedOutput", "OutputStream", "StreamedOutput", "WriteSegments"]

logger = logging.getLogger("antiphon")

WriteSegments: TypeAlias = Callable[[int, Sequence[Block]], Awaitable[None]]
"""Takes segments, of which the first has this number."""

_BATCH_INTERVAL_SECONDS = 0.002
"""Seconds within which segments count as coming fast."""
_MAX_BATCH_SEGMENTS = 256
"""How many segments are handed on together at the max_bytes."""
_MAX_BATCH_BYTES = 256 * 1024
"""The same, in bytes."""


class OutputStream:
    """The segments of an answer whose caller wants all of it at once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: list[Block] = []
        self._size = 0
        self.sent = 0
        """How many the caller has."""

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Number some segments; raises `Failure` where an answer would become too large."""
        for block in blocks:
            self._blocks.append(block)
            self._size += _size(block)
        if self._size > self._max_bytes:
            raise Failure(
                f"The answer has more than {self._max_bytes} bytes. Call the tool as a task, or let it say less."
            )

    @property
    def has_emitted(self) -> bool:
        """Whether anything was emitted."""
        return bool(self._blocks or self.sent)

    async def flush(self) -> None:
        """Hand on what was emitted."""

    async def restart(self) -> None:
        """The run begins again, and with it the numbers."""
        await self.flush()
        self._blocks, self._size = [], 0

    async def remaining(self) -> list[Block]:
        """What the result of the run has to have in it: all that is in no log."""
        return self._blocks

    def emitted(self) -> list[Block]:
        """All that was emitted, for a log that begins now."""
        return list(self._blocks)


class StreamedOutput(OutputStream):
    """The segments of an answer that the caller wants as they come. It keeps them for the last word too."""

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
        """Number some segments, and send them: now if the last ones were a while ago, else soon."""
        await super().emit(blocks)
        now = self._loop.time()
        if now - self._last_sent_at >= _BATCH_INTERVAL_SECONDS:
            await self.flush()
        elif (
            len(self._blocks) - self.sent >= _MAX_BATCH_SEGMENTS
            or self._size - self._sent_bytes >= _MAX_BATCH_BYTES
        ):
            await self.flush()
            await asyncio.sleep(0)  # a function that never waits must not be the only one that runs
        elif self._timer is None and len(self._blocks) > self.sent:
            self._timer = self._loop.call_at(self._last_sent_at + _BATCH_INTERVAL_SECONDS, self._on_timer)

    async def flush(self) -> None:
        """Send what was emitted."""
        async with self._lock:
            first, blocks = self.sent + 1, self._blocks[self.sent :]
            self._sent_bytes = self._size
            if blocks:
                self.sent += len(blocks)
                await self._write_segments(first, blocks)
                self._last_sent_at = self._loop.time()

    async def remaining(self) -> list[Block]:
        """All of it: a last word is complete by itself, or begins after what was sent."""
        self._cancel_timer()
        self._closed = True
        async with self._lock:  # what is being sent counts as sent
            return self._blocks

    def _on_timer(self) -> None:
        self._timer = None
        self._sending = self._loop.create_task(self._flush_in_background())

    async def _flush_in_background(self) -> None:
        try:
            if not self._closed:  # the last word, which may be on its way logged, has the rest
                await self.flush()
        except Exception as error:  # a caller that is gone; whoever serves it notices by itself
            logger.debug("Segments could not be sent: %s", error)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LoggedOutput(OutputStream):
    """The segments of a task: each is in its log before anybody sees it, and nowhere else."""

    def __init__(self, write: WriteSegments, *, logged: int, emitted: int = 0) -> None:
        super().__init__(0)
        self._write_segments = write
        self.logged = logged
        self._number = emitted
        self._loop = asyncio.get_running_loop()
        self._scheduled: asyncio.Handle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._closing = False

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Number some segments; waits while too many of them are not in the log yet."""
        self._raise_failure()  # what comes after a gap in the log must not get into it
        for block in blocks:
            self._number += 1
            if self._number > self.logged + len(self._blocks):
                self._blocks.append(block)
                self._size += _size(block)
        if self._blocks and self._writing is None and self._scheduled is None:
            # Not at once: a function that goes on without waiting may have more to say, or the last word.
            self._scheduled = self._loop.call_soon(self._start_writing)
        while len(self._blocks) >= _MAX_BATCH_SEGMENTS or self._size >= _MAX_BATCH_BYTES:
            await self._wait_for_write()
        self._raise_failure()

    @property
    def has_emitted(self) -> bool:
        """Whether anything was emitted."""
        return self._number > 0

    async def flush(self) -> None:
        """Wait until everything that was emitted is in the log."""
        while self._blocks or self._writing is not None:
            await self._wait_for_write()
        self._raise_failure()

    async def restart(self) -> None:
        """The run begins again; what is in the log stays as it is."""
        await self.flush()
        self._number = 0

    async def remaining(self) -> list[Block]:
        """What is not in the log yet, to be written together with the end."""
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
        """Nothing: there is a log logged."""
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
    """About how many bytes a block has on the wire."""
    if isinstance(block, Text):
        return len(block.text) + 32
    if isinstance(block, Image | Audio):
        return len(block.data) + 64
    resource = getattr(block, "resource", None)
    return len(getattr(resource, "text", "") or getattr(resource, "blob", "")) + 256
