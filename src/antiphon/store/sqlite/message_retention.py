"""Decides how long the file keeps messages between processes.

Another process reads a message when it polls next. A message is kept for so long that every process has
polled, however many messages are published meanwhile, up to bounds for their number and size. The file does
not have the times of messages: each process notes when it published its own, and deletes all before these.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["MessageRetention"]

_RETENTION_MS = 10_000
"""How long a message is kept. A process that does not poll for longer misses messages."""
_MAX_MESSAGES = 16_384
"""How many messages are kept at most."""
_MAX_BYTES = 32 * 2**20
"""How many bytes the messages of one process have at most that are kept."""
_NOTE_EVERY_MS = 1_000
_NOTE_EVERY_MESSAGES = 64
_NOTE_EVERY_BYTES = 2**20
"""After how much time, how many messages or bytes the next time is noted. Each leads to one deletion."""


class _Note(NamedTuple):
    """The last message that was published at a time, and the bytes since the note before."""

    at: int
    number: int
    size: int


class MessageRetention:
    """The times at which one process has published messages."""

    def __init__(self) -> None:
        self._notes: deque[_Note] = deque()
        self._size = 0
        self._unnoted = 0

    def last_old_number(self, first: int, now: int) -> int | None:
        """Return up to which number messages can be deleted; `None` if there is nothing to delete now.

        `first` is the number of the first message that is being published.
        """
        last: int | None = None
        while self._notes:
            oldest = self._notes[0]
            is_needed = oldest.at > now - _RETENTION_MS and oldest.number > first - _MAX_MESSAGES
            if is_needed and self._size <= _MAX_BYTES:
                break
            self._size -= oldest.size
            last = oldest.number
            self._notes.popleft()
        return None if last is None else min(last, first - 1)

    def note(self, number: int, size: int, now: int) -> None:
        """Note, after a commit, that messages of `size` bytes up to `number` were published."""
        self._unnoted += size
        if self._notes:
            last = self._notes[-1]
            if (
                now - last.at < _NOTE_EVERY_MS
                and number - last.number < _NOTE_EVERY_MESSAGES
                and self._unnoted < _NOTE_EVERY_BYTES
            ):
                return
        self._notes.append(_Note(now, number, self._unnoted))
        self._size += self._unnoted
        self._unnoted = 0
