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

__all__ = ["LoggedOutput", "OutputStream", "StreamedOutput", "Take"]

logger = logging.getLogger("antiphon")

Take: TypeAlias = Callable[[int, Sequence[Block]], Awaitable[None]]
"""Takes segments, of which the first has this number."""

_PACE = 0.002
"""Seconds within which segments count as coming fast."""
_BATCH = 256
"""How many segments are handed on together at the most."""
_BATCH_BYTES = 256 * 1024
"""The same, in bytes."""


class OutputStream:
    """The segments of an answer whose caller wants all of it at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Block] = []
        self._size = 0
        self.sent = 0
        """How many the caller has."""

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Number some segments; raises `Failure` where an answer would become too large."""
        for block in blocks:
            self._kept.append(block)
            self._size += _size(block)
        if self._size > self._most:
            raise Failure(
                f"The answer has more than {self._most} bytes. Call the tool as a task, or let it say less."
            )

    @property
    def begun(self) -> bool:
        """Whether anything was emitted."""
        return bool(self._kept or self.sent)

    async def flush(self) -> None:
        """Hand on what was emitted."""

    async def again(self) -> None:
        """The run begins again, and with it the numbers."""
        await self.flush()
        self._kept, self._size = [], 0

    async def rest(self) -> list[Block]:
        """What the result of the run has to have in it: all that is in no log."""
        return self._kept

    def so_far(self) -> list[Block]:
        """All that was emitted, for a log that begins now."""
        return list(self._kept)


class StreamedOutput(OutputStream):
    """The segments of an answer that the caller wants as they come. It keeps them for the last word too."""

    def __init__(self, most: int, take: Take, *, sent: int) -> None:
        super().__init__(most)
        self._take = take
        self.sent = sent
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._last = float("-inf")
        self._taken_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Number some segments, and send them: now if the last ones were a while ago, else soon."""
        await super().emit(blocks)
        now = self._loop.time()
        if now - self._last >= _PACE:
            await self.flush()
        elif len(self._kept) - self.sent >= _BATCH or self._size - self._taken_bytes >= _BATCH_BYTES:
            await self.flush()
            await asyncio.sleep(0)  # a function that never waits must not be the only one that runs
        elif self._timer is None and len(self._kept) > self.sent:
            self._timer = self._loop.call_at(self._last + _PACE, self._due)

    async def flush(self) -> None:
        """Send what was emitted."""
        async with self._lock:
            first, blocks = self.sent + 1, self._kept[self.sent :]
            self._taken_bytes = self._size
            if blocks:
                self.sent += len(blocks)
                await self._take(first, blocks)
                self._last = self._loop.time()

    async def rest(self) -> list[Block]:
        """All of it: a last word is complete by itself, or begins after what was sent."""
        self._cancel_timer()
        self._closed = True
        async with self._lock:  # what is being sent counts as sent
            return self._kept

    def _due(self) -> None:
        self._timer = None
        self._sending = self._loop.create_task(self._flush_aside())

    async def _flush_aside(self) -> None:
        try:
            if not self._closed:  # the last word, which may be on its way already, has the rest
                await self.flush()
        except Exception as error:  # a caller that is gone; whoever serves it notices by itself
            logger.debug("Segments could not be sent: %s", error)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LoggedOutput(OutputStream):
    """The segments of a task: each is in its log before anybody sees it, and nowhere else."""

    def __init__(self, take: Take, *, already: int, emitted: int = 0) -> None:
        super().__init__(0)
        self._take = take
        self.logged = already
        self._number = emitted
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._closing = False

    async def emit(self, blocks: Iterable[Block]) -> None:
        """Number some segments; waits while too many of them are not in the log yet."""
        self._check()  # what comes after a gap in the log must not get into it
        for block in blocks:
            self._number += 1
            if self._number > self.logged + len(self._kept):
                self._kept.append(block)
                self._size += _size(block)
        if self._kept and self._writing is None and self._soon is None:
            # Not at once: a function that goes on without waiting may have more to say, or the last word.
            self._soon = self._loop.call_soon(self._begin)
        while len(self._kept) >= _BATCH or self._size >= _BATCH_BYTES:
            await self._write_some()
        self._check()

    @property
    def begun(self) -> bool:
        """Whether anything was emitted."""
        return self._number > 0

    async def flush(self) -> None:
        """Wait until everything that was emitted is in the log."""
        while self._kept or self._writing is not None:
            await self._write_some()
        self._check()

    async def again(self) -> None:
        """The run begins again; what is in the log stays as it is."""
        await self.flush()
        self._number = 0

    async def rest(self) -> list[Block]:
        """What is not in the log yet, to be written together with the end."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._closing = True
        while self._writing is not None:
            await asyncio.wait({self._writing})
        self._check()
        rest, self._kept, self._size = self._kept, [], 0
        return rest

    def so_far(self) -> list[Block]:
        """Nothing: there is a log already."""
        return []

    async def _write_some(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._begin()
        if self._writing is not None:
            await asyncio.wait({self._writing})
        self._check()

    def _begin(self) -> None:
        self._soon = None
        if self._kept and self._writing is None:
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        blocks = self._kept
        self._kept, self._size = [], 0
        first, self.logged = self.logged + 1, self.logged + len(blocks)
        try:
            await self._take(first, blocks)
        except Exception as error:
            self._failure = error
        finally:
            self._writing = None
            if self._failure is None and not self._closing:
                self._begin()

    def _check(self) -> None:
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
