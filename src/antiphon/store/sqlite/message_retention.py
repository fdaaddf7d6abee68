"""Decides how long the file keeps messages between processes.

Another process reads a message when it polls next. A message is kept for so long that every process has
polled, however many messages are published meanwhile, up to a bound for the size of the file.
"""

from __future__ import annotations

from collections import deque

__all__ = ["MessageRetention"]

_RETENTION_MS = 10_000
"""How long a message is kept. A process that does not poll for longer misses messages."""
_MAX_MESSAGES = 16_384
"""How many messages are kept at most."""


class MessageRetention:
    """Remembers when messages were published. Belongs to one writer, and so to one process."""

    def __init__(self) -> None:
        self._published: deque[tuple[int, int]] = deque()

    def last_old_number(self, number: int, now: int) -> int:
        """Return up to which number messages can be deleted, after the message `number` was published."""
        last = number - _MAX_MESSAGES
        while self._published:
            published, earlier = self._published[0]
            if published > now - _RETENTION_MS and earlier > last:
                break
            last = max(last, earlier)
            self._published.popleft()
        self._published.append((now, number))
        return last
