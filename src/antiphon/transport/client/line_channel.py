"""Requests and responses over one pair of byte streams, with one JSON-RPC message a line.

Owns the requests that wait for a response, and the order in which other messages are received. The channels
that use it start and stop the other end.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TypeAlias

from msgspec import UNSET

from antiphon.errors import BadAnswer, ClientError, RequestError, Unreachable
from antiphon.model.request import RequestId
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.decoding import decode
from antiphon.wire.client.dialect import Message
from antiphon.wire.client.segments import is_partial
from antiphon.wire.jsonrpc import Frame

__all__ = ["LineChannel", "LineConnection"]

logger = logging.getLogger("antiphon.client")

Reader: TypeAlias = Callable[[int], Awaitable[bytes]]
Writer: TypeAlias = Callable[[bytes], Awaitable[None]]

_CHUNK_BYTES = 64 * 1024
_MAX_UNREADABLE_LINES = 100
"""How many lines in a row may be unreadable before the connection fails."""

_receiving: ContextVar[bool] = ContextVar("antiphon_receiving", default=False)
"""Whether the current task runs the receiver, which must not wait for itself."""


class LineConnection:
    """One connection. `read` returns no bytes at its end; `write` raises `Unreachable` if it is lost."""

    def __init__(
        self,
        peer: str,
        read: Reader,
        write: Writer,
        receive: Receiver,
        *,
        max_message: int,
        max_unread: int = 1024,
    ) -> None:
        self._peer = peer
        self._read = read
        self._write = write
        self._receive = receive
        self._max_message = max_message
        self._pending: dict[RequestId, asyncio.Future[Frame]] = {}
        self._streams: set[RequestId] = set()
        self._inbox: asyncio.Queue[Frame | asyncio.Event] = asyncio.Queue(max_unread)
        self._receiving = False
        self._unreadable = 0
        self._failure: ClientError | None = None
        self._writing = asyncio.Lock()
        self._tasks = (asyncio.create_task(self._listen()), asyncio.create_task(self._pump()))

    async def request(self, message: Message) -> Frame:
        """Send a request and return its response."""
        assert message.id is not None
        self._check()
        response: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        # The future may fail while the message is still written, when nothing awaits it.
        response.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pending[message.id] = response
        if message.streams:
            self._streams.add(message.id)
        try:
            await self.send(message)
            frame = await response
        except ClientError:
            await self._catch_up()  # the server may have sent messages before it died
            raise
        finally:
            self._pending.pop(message.id, None)
            self._streams.discard(message.id)
        await self._catch_up()
        return frame

    async def send(self, message: Message) -> None:
        """Send one message."""
        self._check()
        async with self._writing:
            await self._write(message.body + b"\n")

    def fail(self, failure: ClientError) -> None:
        """Fail all waiting requests, and all later ones, with this error."""
        if self._failure is None:
            self._failure = failure
        for response in self._pending.values():
            if not response.done():
                response.set_exception(_copy(self._failure))

    async def close(self) -> None:
        """Stop reading."""
        self.fail(Unreachable(f"The connection to {self._peer} is closed."))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    @property
    def listening(self) -> asyncio.Task[None]:
        """The task that reads lines; it ends when the other side closes its output."""
        return self._tasks[0]

    def _check(self) -> None:
        if self._failure is not None:
            raise _copy(self._failure)

    async def _listen(self) -> None:
        """Split the input into lines, and handle each."""
        buffer = bytearray()
        scanned = 0
        while chunk := await self._read(_CHUNK_BYTES):
            buffer += chunk
            while (end := buffer.find(b"\n", scanned)) >= 0:
                await self._handle(bytes(buffer[:end]))
                del buffer[: end + 1]
                scanned = 0
            scanned = len(buffer)
            if scanned > self._max_message:
                self.fail(BadAnswer(f"{self._peer} sent a line of more than {self._max_message} bytes."))
            if self._failure is not None:
                return

    async def _handle(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = decode(line)
        except RequestError as error:
            self._unreadable += 1
            logger.warning("%s printed a line that is not a JSON-RPC message: %.80r", self._peer, line)
            if self._unreadable >= _MAX_UNREADABLE_LINES:
                self.fail(BadAnswer(f"{self._peer} does not speak MCP. {error.message}"))
            return
        self._unreadable = 0
        if frame.method is not UNSET:
            await self._inbox.put(frame)
            return
        response = self._pending.get(frame.request_id) if frame.request_id is not None else None
        if response is not None and frame.request_id in self._streams and is_partial(frame):
            await self._inbox.put(frame)
        elif response is not None and not response.done():
            response.set_result(frame)
        else:
            logger.debug(
                "%s answered request %r, which is not waiting for a response.", self._peer, frame.request_id
            )

    async def _pump(self) -> None:
        """Hand messages that are not last responses to the receiver, one by one."""
        _receiving.set(True)
        while True:
            frame = await self._inbox.get()
            if isinstance(frame, asyncio.Event):
                frame.set()
                continue
            self._receiving = True
            await self._receive(frame)
            self._receiving = False

    async def _catch_up(self) -> None:
        """Wait until the receiver has handled all earlier messages, unless the receiver itself is waiting."""
        if _receiving.get() or (self._inbox.empty() and not self._receiving):
            return
        waiting = asyncio.create_task(self._reach())
        try:
            await asyncio.wait({waiting, self._tasks[1]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def _reach(self) -> None:
        reached = asyncio.Event()
        await self._inbox.put(reached)
        await reached.wait()


def _copy(failure: ClientError) -> ClientError:
    """Return a copy of the error for each request, because each adds its own traceback."""
    return copy.copy(failure)


class LineChannel:
    """What channels over one connection share: all messages go over it, and it is the session.

    Subclasses set the connection when they open, and remove it when they close.
    """

    has_streams = False
    has_headers = False

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._lines: LineConnection | None = None

    async def request(self, message: Message) -> Frame:
        """Send a request and return its response."""
        return await self._connected().request(message)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        await self._connected().send(message)

    async def listen(
        self,
        headers: Mapping[str, str],
        *,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        """Do nothing: all messages come on one stream, which is open."""

    async def end(self, headers: Mapping[str, str]) -> None:
        """Do nothing: the session ends with the connection."""

    def _connected(self) -> LineConnection:
        if self._lines is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        return self._lines
