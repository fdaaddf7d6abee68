"""Writes the progress of a running task as its status message, and its log messages into the server's log.

Owns the rate: a function may report progress as often as it likes, and the store gets about one write a
second. Progress is in the task's record and not in its log; the entry that ends a run has the last report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from antiphon.errors import StoreError
from antiphon.model.notification import Log, Progress
from antiphon.model.segment import CallerMessage
from antiphon.model.task import MAX_MESSAGE_CHARACTERS, TaskProgress
from antiphon.runtime.writable import finite, writable_text

__all__ = ["ProgressWriter", "log_message"]

logger = logging.getLogger("antiphon.tasks")

FIRST_WRITE_SECONDS = 0.1
"""How long the first report waits: a quick task need not write it, and a replay reports much at once.

Not a setting: it is shorter than any poll interval.
"""
WRITE_INTERVAL_SECONDS = 1.0
"""How long to wait between two writes.

Not a setting: people read the message, and clients poll about once a second.
"""
_LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""The level of each level of MCP in Python's logging."""


class ProgressWriter:
    """The progress of one run of a task. `write` stores a report."""

    __slots__ = ("_is_closed", "_latest", "_timer", "_unwritten", "_write", "_writing")

    def __init__(self, write: Callable[[TaskProgress], Awaitable[None]]) -> None:
        self._write = write
        self._latest: TaskProgress | None = None
        self._unwritten = False
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    def report(self, message: Progress) -> None:
        """Store a report soon. A later report replaces one that is not stored yet."""
        progress = finite(message.progress)
        if progress is None:
            return
        self._latest = TaskProgress(progress, finite(message.total), _storable(message.message))
        self._unwritten = True
        if self._timer is None and self._writing is None and not self._is_closed:
            self._schedule(FIRST_WRITE_SECONDS)

    def close(self) -> dict[str, Any] | None:
        """Stop writing; return the last report as JSON, for the log, or `None` if there was none."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return None if self._latest is None else msgspec.to_builtins(self._latest)

    def _schedule(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._unwritten and self._latest is not None:
            self._unwritten = False
            self._writing = asyncio.create_task(self._store(self._latest))

    async def _store(self, progress: TaskProgress) -> None:
        try:
            await self._write(progress)
        except StoreError as error:  # the run notices at its next entry, and progress may be lost
            logger.debug("Cannot store the progress of a task: %s", error)
        finally:
            self._writing = None
        if not self._is_closed:
            self._schedule(WRITE_INTERVAL_SECONDS)


def _storable(message: str | None) -> str | None:
    """Return a message that every store can keep: short, and without lone surrogates."""
    return None if message is None else writable_text(message)[:MAX_MESSAGE_CHARACTERS]


def log_message(task_id: str, message: CallerMessage) -> None:
    """Write a log message of a task into the server's log: the caller of a task is not connected."""
    if isinstance(message, Log):
        level = _LEVELS.get(message.level, logging.INFO)
        if logger.isEnabledFor(level):
            data = message.data
            text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
            logger.log(level, "Task %s: %s", task_id, text)
