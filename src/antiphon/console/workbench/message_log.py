"""Keeps the last messages between a client and a server, bounded in number and in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from antiphon.model.request import RequestId
from antiphon.transport.client.recording import RecordedMessage
from antiphon.transport.client.recording_file import write_lines

__all__ = ["MessageLog"]

MAX_MESSAGES = 5000
MAX_BYTES = 32 * 1024 * 1024
"""How many bytes of messages are kept. The oldest messages are dropped first."""
MAX_LISTED = 500
"""How many messages a page gets when it opens."""
_MAX_WAITING = 1000
"""How many requests without a response are remembered, to time their responses."""


class LoggedMessage:
    """One message, with its number and, for a response, the method and the time of its request."""

    __slots__ = ("message", "number", "request_method", "seconds")

    def __init__(
        self, number: int, message: RecordedMessage, request_method: str, seconds: float | None
    ) -> None:
        self.number = number
        self.message = message
        self.request_method = request_method
        self.seconds = seconds

    def summary(self) -> dict[str, Any]:
        """Return the fields that a list shows."""
        message = self.message
        kind, method = _kind(message), message.method or self.request_method
        label = method if message.method else f"{method} {kind}"
        way = "→ sent" if message.sender == "client" else "← received"
        at = datetime.fromtimestamp(message.at, UTC).isoformat(timespec="milliseconds")[11:23]
        took = "" if self.seconds is None else f"{round(self.seconds * 1000, 1)} ms"
        return {
            "number": self.number,
            "at": round(message.at * 1000),
            "from": message.sender,
            "kind": kind,
            "method": method,
            "label": label,
            "cells": [way, at, label, message.id, len(message.body), took],
            "isBad": kind in ("error", "failure"),
            "id": message.id,
            "size": len(message.body),
            "ms": None if self.seconds is None else round(self.seconds * 1000, 1),
        }


class MessageLog:
    """The messages of one connection. `on_message` is called with the summary of each."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None]) -> None:
        self._on_message = on_message
        self._messages: deque[LoggedMessage] = deque()
        self.size = 0
        """How many bytes of messages are kept."""
        self._last = 0
        self._waiting: dict[tuple[str, RequestId], tuple[str, float]] = {}
        self.dropped = 0
        """How many messages are no longer kept."""

    def add(self, message: RecordedMessage) -> None:
        """Keep a message. The oldest ones are dropped if there are too many."""
        method, seconds = "", None
        if message.id is not None:
            if message.method:
                self._waiting[message.sender, message.id] = (message.method, message.at)
                if len(self._waiting) > _MAX_WAITING:
                    del self._waiting[next(iter(self._waiting))]
            else:
                asker = "client" if message.sender == "server" else "server"
                method, began = self._waiting.get((asker, message.id), ("", message.at))
                seconds = message.at - began
        self._last += 1
        logged = LoggedMessage(self._last, message, method, seconds)
        self._messages.append(logged)
        self.size += len(message.body)
        while len(self._messages) > MAX_MESSAGES or (self.size > MAX_BYTES and len(self._messages) > 1):
            self.size -= len(self._messages.popleft().message.body)
            self.dropped += 1
        self._on_message(logged.summary())

    def latest(self) -> list[dict[str, Any]]:
        """Return the summaries of the last messages, the oldest first."""
        start = max(0, len(self._messages) - MAX_LISTED)
        return [self._messages[index].summary() for index in range(start, len(self._messages))]

    def find(self, number: int) -> LoggedMessage | None:
        """Return the message of a number; `None` if it is no longer kept."""
        if not self._messages:
            return None
        index = number - self._messages[0].number
        return self._messages[index] if 0 <= index < len(self._messages) else None

    def clear(self) -> None:
        """Forget all messages. The numbers go on."""
        self._messages.clear()
        self.size = 0
        self.dropped = 0

    def export(self, *, server: str, version: str) -> Iterable[bytes]:
        """Yield the lines of a file that a test can replay."""
        return write_lines([logged.message for logged in self._messages], server=server, version=version)


def _kind(message: RecordedMessage) -> str:
    if message.failure:
        return "failure"
    if message.method:
        return "notification" if message.id is None else "request"
    return "error" if message.is_error else "response"
