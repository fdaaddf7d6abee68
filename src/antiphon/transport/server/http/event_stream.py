"""The event stream of one HTTP response, from its headers to its last event.

Owns the order of the events. If the client can resume the stream, an `EventBuffer` keeps the events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.transport.server.http.asgi import Send
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.transport.server.http.unread import pieces
from antiphon.wire import sse

__all__ = ["EventStream"]

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_YIELD_SECONDS = 0.02
"""How long a stream may write before it lets other tasks of the event loop run."""


class EventStream:
    """An event stream. `create_buffer` is for streams that the client can resume.

    With `numbers_events`, the events of another stream have ids too.
    """

    def __init__(
        self,
        send: Send,
        create_buffer: Callable[[], EventBuffer] | None = None,
        *,
        numbers_events: bool = False,
    ) -> None:
        self._send = send
        self._numbers_events = numbers_events
        self._count = 0
        self._create_buffer = create_buffer
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._started = False
        self._buffer: EventBuffer | None = None
        self.detached = False
        """Whether the stream continues without its connection."""
        self.written = self._yielded = self._loop.time()
        """When the last event was written."""
        self.waiting_since: float | None = None
        """Since when the stream has waited for the client to read; `None` if it does not wait."""

    async def open(self) -> None:
        """Start the response, without an event."""
        async with self._lock:
            await self._start()

    async def write(self, data: bytes) -> None:
        """Send a message."""
        await self._event(data, last=False)

    async def finish(self, data: bytes) -> None:
        """Send the last message, and end the stream."""
        await self._event(data, last=True)

    async def write_event(self, event: bytes) -> None:
        """Send an event that is encoded already."""
        async with self._lock:
            await self._start()
            await self._put(event)

    async def end(self) -> None:
        """End the stream without a last message."""
        async with self._lock:
            await self._start()
            await self._put(b"", last=True)

    async def keep_alive(self) -> None:
        """Send a comment, which clients ignore."""
        await self.write_event(sse.COMMENT)

    async def detach(self) -> None:
        """Close the connection. The stream continues in the buffer, and the client resumes it."""
        async with self._lock:
            await self._start()
            self.detached = True
            await self._send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Mark the stream as complete, also after an error."""
        if self._buffer is not None:
            self._buffer.end()

    async def _event(self, data: bytes, *, last: bool) -> None:
        async with self._lock:
            await self._start()
            await self._put(self._encode(data, last=last), last=last)

    def _encode(self, data: bytes, *, last: bool) -> bytes:
        if self._buffer is not None:
            return self._buffer.add(data, last=last)
        if not self._numbers_events:
            return sse.event(data)
        self._count += 1
        return sse.event(data, id=f"event-{self._count}")

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        first = b""
        if self._create_buffer is not None:
            self._buffer = self._create_buffer()
            first = self._buffer.opening_event()
        await self._put(first)

    async def _put(self, event: bytes, *, last: bool = False) -> None:
        if self.detached or (self._buffer is not None and self._buffer.resumptions):
            return
        for piece, more in pieces(event, more_body=not last):
            self.written = self.waiting_since = self._loop.time()
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        self.waiting_since = None
        if self.written - self._yielded > _YIELD_SECONDS:
            # Sending to a client that has disconnected never waits. Without this, a tool that emits much
            # would block the event loop: other requests, and the notice that the client has disconnected.
            await asyncio.sleep(0)
            self._yielded = self._loop.time()
