"""The event stream of one HTTP response, from its first word to its last.

Owns the order of what is written on it. A stream that can be taken up again is kept in a `EventBuffer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.transport.server.http.asgi import Send
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.wire import sse

__all__ = ["EventStream"]

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


_BREATH = 0.02
"""Seconds of writing after which others get a turn."""


class EventStream:
    """An event stream; made with the first word that is said."""

    def __init__(self, send: Send, new_replay: Callable[[], EventBuffer] | None = None) -> None:
        self._send = send
        self._new_replay = new_replay
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._started = False
        self.replay: EventBuffer | None = None
        self.detached = False
        self.written = self._breathed = self._loop.time()
        self.waiting_since: float | None = None
        """Since when the other end has not taken what was written."""

    async def open(self) -> None:
        """Begin the stream, with nothing on it yet."""
        async with self._lock:
            await self._start()

    async def write(self, data: bytes) -> None:
        """Send a message."""
        await self._event(data, last=False)

    async def finish(self, data: bytes) -> None:
        """Send the last message, and end the stream."""
        await self._event(data, last=True)

    async def pass_on(self, event: bytes) -> None:
        """Send an event that is already written."""
        async with self._lock:
            await self._start()
            await self._put(event)

    async def end(self) -> None:
        """End the stream without a last word."""
        async with self._lock:
            await self._start()
            await self._put(b"", last=True)

    async def keep_alive(self) -> None:
        """Send something that every reader ignores."""
        await self.pass_on(sse.COMMENT)

    async def detach(self) -> None:
        """Let go of the connection; the caller comes back for the rest."""
        async with self._lock:
            await self._start()
            self.detached = True
            await self._send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """No more will come, however it went."""
        if self.replay is not None:
            self.replay.end()

    async def _event(self, data: bytes, *, last: bool) -> None:
        async with self._lock:
            await self._start()
            event = sse.event(data) if self.replay is None else self.replay.add(data, last=last)
            await self._put(event, last=last)

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        first = b""
        if self._new_replay is not None:
            self.replay = self._new_replay()
            first = self.replay.prime()
        await self._put(first)

    async def _put(self, event: bytes, *, last: bool = False) -> None:
        if self.detached or (self.replay is not None and self.replay.taken_up):
            return
        self.written = self.waiting_since = self._loop.time()
        await self._send({"type": "http.response.body", "body": event, "more_body": not last})
        self.waiting_since = None
        if self.written - self._breathed > _BREATH:
            # To a caller that is gone nothing has to wait: without this, a tool that says much would keep
            # everybody else from being served, and the news that its caller is gone from being heard.
            await asyncio.sleep(0)
            self._breathed = self._loop.time()
