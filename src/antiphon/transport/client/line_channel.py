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
from typing import Literal, TypeAlias

from msgspec import UNSET

from antiphon.errors import BadAnswer, ClientError, RequestError, Unreachable
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.request import RequestId
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.decoding import decode
from antiphon.turn import Turn
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

_MAX_GIVEN_UP = 1000
"""How many requests that were given up a connection remembers until they are answered."""

_MAX_QUOTED_BYTES = 80
"""How much of an unreadable line messages quote."""

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
        quotes_output: bool = True,
    ) -> None:
        self._peer = peer
        self._read = read
        self._write = write
        self._receive = receive
        self._max_message = max_message
        self._quotes_output = quotes_output
        self._pending: dict[RequestId, asyncio.Future[Frame]] = {}
        self._streams: set[RequestId] = set()
        self._answered_by: dict[RequestId, frozenset[str]] = {}
        self._given_up: set[RequestId] = set()
        self._last_answered = asyncio.Event()
        self._inbox: asyncio.Queue[Frame | asyncio.Event] = asyncio.Queue(max_unread)
        self._receiving = False
        self._unreadable = 0
        self.is_silent = True
        """Whether the other side has sent nothing at all."""
        self.first_unreadable: str | None = None
        """The beginning of the first line that was no message."""
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
        if message.answered_by:
            self._answered_by[message.id] = message.answered_by
        try:
            await self.send(message)
            frame = await response
        except ClientError:
            await self._catch_up()  # the server may have sent messages before it died
            raise
        except asyncio.CancelledError:
            if (response.cancelled() or not response.done()) and len(self._given_up) < _MAX_GIVEN_UP:
                self._given_up.add(message.id)
                self._last_answered.clear()
            raise
        finally:
            self._pending.pop(message.id, None)
            self._streams.discard(message.id)
            self._answered_by.pop(message.id, None)
        await self._catch_up()
        return frame

    async def send(self, message: Message) -> None:
        """Send one message."""
        self._check()
        async with self._writing:
            await self._write(message.body + b"\n")

    async def answers_given_up(self, timeout: float) -> bool:
        """Return whether the other side has answered all requests that were given up, within a time."""
        try:
            async with asyncio.timeout(timeout):
                if self._given_up:
                    await self._last_answered.wait()
        except TimeoutError:
            return False
        return self._failure is None

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
        turn = Turn()
        chunk = await self._read(_CHUNK_BYTES)
        self.is_silent = False
        while chunk:
            buffer += chunk
            while (end := buffer.find(b"\n", scanned)) >= 0:
                await self._handle(bytes(buffer[:end]))
                del buffer[: end + 1]
                scanned = 0
                await turn.step(end)  # there may always be another line
            scanned = len(buffer)
            if scanned > self._max_message:
                self.fail(BadAnswer(f"{self._peer} sent a line of more than {self._max_message} bytes."))
            if self._failure is not None:
                return
            chunk = await self._read(_CHUNK_BYTES)

    async def _handle(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = decode(line)
        except RequestError as error:
            self._unreadable += 1
            # A server that logs to its standard output would fill the log.
            level = logging.WARNING if self.first_unreadable is None else logging.DEBUG
            quoted = line[:_MAX_QUOTED_BYTES].decode(errors="replace")
            logger.log(level, "%s printed a line that is not a JSON-RPC message: %r", self._peer, quoted)
            if self.first_unreadable is None:
                self.first_unreadable = quoted
            if self._unreadable >= _MAX_UNREADABLE_LINES:
                remark = _stray_remark(self.first_unreadable if self._quotes_output else None)
                self.fail(BadAnswer(f"{self._peer} does not speak MCP. {error.message} {remark}"))
            return
        self._unreadable = 0
        if frame.method is not UNSET and not self._is_answer(frame):
            await self._inbox.put(frame)
            return
        response = self._pending.get(frame.request_id) if frame.request_id is not None else None
        if response is not None and frame.request_id in self._streams and is_partial(frame):
            await self._inbox.put(frame)
        elif response is not None and not response.done():
            response.set_result(frame)
        else:
            self._given_up.discard(frame.request_id or "")
            if not self._given_up:
                self._last_answered.set()
            logger.debug(
                "%s answered request %r, which is not waiting for a response.", self._peer, frame.request_id
            )

    def _is_answer(self, frame: Frame) -> bool:
        """Return whether a message with a method takes the place of the response to a request."""
        return frame.request_id is not None and frame.method in self._answered_by.get(frame.request_id, ())

    async def _pump(self) -> None:
        """Hand messages that are not last responses to the receiver, one by one."""
        _receiving.set(True)
        turn = Turn()
        while True:
            frame = await self._inbox.get()
            if isinstance(frame, asyncio.Event):
                frame.set()
                continue
            self._receiving = True
            await self._receive(frame)
            self._receiving = False
            await turn.step()

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


def _stray_remark(line: str | None) -> str:
    """Return a sentence about a line that is no message, for an error message; `None` hides the line."""
    printed = "a line" if line is None else repr(line)
    return f"It printed {printed}, which is not MCP: only messages may go to its standard output."


def _copy(failure: ClientError) -> ClientError:
    """Return a copy of the error for each request, because each adds its own traceback."""
    return copy.copy(failure)


class LineChannel:
    """What channels over one connection share: all messages go over it, and it is the session.

    Subclasses set the connection when they open, and remove it when they close.
    """

    has_streams = False
    has_headers = False
    transport: Literal["pipe"] | None = None
    """How messages travel, as traces name it; `None` in memory."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._lines: LineConnection | None = None

    def facts(self, method: str) -> MessageFacts:
        """Return the facts about a message for its span."""
        return MessageFacts(method, transport=self.transport)

    quotes_output = True
    """Whether error messages quote a line that is no message. The log always does."""

    @property
    def remark(self) -> str:
        """What may explain why the server does not answer."""
        line = None if self._lines is None else self._lines.first_unreadable
        if line is None:
            return ""
        return _stray_remark(line if self.quotes_output else None)

    async def request(self, message: Message) -> Frame:
        """Send a request and return its response."""
        return await self._connected().request(message)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        await self._connected().send(message)

    async def answers_given_up(self, timeout: float) -> bool:
        """Return whether the server has answered all requests that were given up, within a time."""
        return self._lines is not None and await self._lines.answers_given_up(timeout)

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
