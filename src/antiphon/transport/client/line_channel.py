"""Requests and responses over one shared pair of byte streams, a JSON-RPC message a line.

It owns what waits for a response, and the order in which everything else is received. Who is at the
other end, and how it is started and stopped, is for those who use it.
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
from antiphon.wire import jsonrpc
from antiphon.wire.client.dialect import Message
from antiphon.wire.client.segments import is_partial
from antiphon.wire.jsonrpc import Frame

__all__ = ["LineChannel", "LineConnection"]

logger = logging.getLogger("antiphon.client")

Reader: TypeAlias = Callable[[int], Awaitable[bytes]]
Writer: TypeAlias = Callable[[bytes], Awaitable[None]]

_CHUNK = 64 * 1024
_UNREADABLE_LINES = 100

_receiving: ContextVar[bool] = ContextVar("antiphon_receiving", default=False)
"""Set in whatever a receiver runs, which must not wait for itself."""


class LineConnection:
    """One conversation. `read` gives nothing when it is over; `write` raises what a lost connection is."""

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
        """Send a request and wait for its response."""
        assert message.id is not None
        self._check()
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        # It may fail while the message is still being written, and nobody awaits it then.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pending[message.id] = answer
        if message.streams:
            self._streams.add(message.id)
        try:
            await self.send(message)
            frame = await answer
        except ClientError:
            await self._catch_up()  # what a server sent before it died has come
            raise
        finally:
            self._pending.pop(message.id, None)
            self._streams.discard(message.id)
        await self._catch_up()
        return frame

    async def send(self, message: Message) -> None:
        """Write one message."""
        self._check()
        async with self._writing:
            await self._write(message.body + b"\n")

    def fail(self, failure: ClientError) -> None:
        """End the conversation: everything that waits, and everything to come, fails with this."""
        if self._failure is None:
            self._failure = failure
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(_copy(self._failure))

    async def close(self) -> None:
        """Stop reading."""
        self.fail(Unreachable(f"The connection to {self._peer} is closed."))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    @property
    def listening(self) -> asyncio.Task[None]:
        """The task that reads; it is done when the other side has closed its end."""
        return self._tasks[0]

    def _check(self) -> None:
        if self._failure is not None:
            raise _copy(self._failure)

    async def _listen(self) -> None:
        """Cut what comes into lines, and take each."""
        buffer = bytearray()
        scanned = 0
        while chunk := await self._read(_CHUNK):
            buffer += chunk
            while (end := buffer.find(b"\n", scanned)) >= 0:
                await self._take(bytes(buffer[:end]))
                del buffer[: end + 1]
                scanned = 0
            scanned = len(buffer)
            if scanned > self._max_message:
                self.fail(BadAnswer(f"{self._peer} sent a line of more than {self._max_message} bytes."))
            if self._failure is not None:
                return

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = jsonrpc.decode(line)
        except RequestError as error:
            self._unreadable += 1
            logger.warning("%s printed a line that is not a message: %.80r", self._peer, line)
            if self._unreadable >= _UNREADABLE_LINES:
                self.fail(BadAnswer(f"{self._peer} does not speak MCP. {error.message}"))
            return
        self._unreadable = 0
        if frame.method is not UNSET:
            await self._inbox.put(frame)
            return
        answer = self._pending.get(frame.request_id) if frame.request_id is not None else None
        if answer is not None and frame.request_id in self._streams and is_partial(frame):
            await self._inbox.put(frame)
        elif answer is not None and not answer.done():
            answer.set_result(frame)
        else:
            logger.debug("%s answered request %r, which nobody waits for.", self._peer, frame.request_id)

    async def _pump(self) -> None:
        """Hand on what is not a last response, one by one."""
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
        """Wait until what came before has been received, unless that is what is waiting."""
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
    """One for each that is told, because each adds its own traceback."""
    return copy.copy(failure)


class LineChannel:
    """What the channels over one such conversation have in common: all is said on it, and it is the session.

    Opening one sets the conversation, closing it takes that away again.
    """

    has_streams = False
    has_headers = False

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._duplex: LineConnection | None = None

    async def request(self, message: Message) -> Frame:
        """Send a request and wait for its response."""
        return await self._open_duplex().request(message)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        await self._open_duplex().send(message)

    async def listen(self, headers: Mapping[str, str]) -> None:
        """There is one stream, and it is open."""

    async def end(self, headers: Mapping[str, str]) -> None:
        """The session is the conversation."""

    def _open_duplex(self) -> LineConnection:
        if self._duplex is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        return self._duplex
