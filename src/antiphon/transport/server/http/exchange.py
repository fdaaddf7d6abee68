"""One HTTP request and its response: JSON if the call ends without a message, else an event stream.

An exchange is the caller of its call. Owns the response, and notices when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from antiphon.errors import RequestError
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.identity import STRANGER, Stranger
from antiphon.model.question import Question
from antiphon.model.request import RequestId
from antiphon.model.segment import CallerMessage
from antiphon.runtime.budget import Account, MemoryBudget, Usage
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import TICK_SECONDS, Supervised
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.asgi import Receive, Send
from antiphon.transport.server.http.event_stream import EventStream
from antiphon.transport.server.http.sessions import Session
from antiphon.transport.server.http.unread import ReadingWatch, pieces
from antiphon.wire.server.dialect import Dialect

__all__ = ["Exchange", "Phase", "send_json"]

Phase: TypeAlias = Literal["reading", "addressed", "running", "answering"]
"""The phases of an exchange: reading the request; its dialect is known; running the call, or the stream that
a client opened; sending the answer, after which nothing else may be sent."""


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
    """Send a whole JSON response, or an empty one."""
    lines = _head_of(body)
    for name, value in headers:
        lines.append((name.encode("latin-1"), value.encode("latin-1")))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


class Exchange(Supervised, Caller):
    """A request that came by HTTP, as the caller of its call."""

    phase: Phase = "reading"
    dialect: Dialect
    """The dialect of the request, from the phase `addressed` on."""
    call: Call[Any] | None = None
    """The call, from the phase `running` until its end; `None` for a stream that a client opened by GET."""
    session: Session | None = None
    stranger: Stranger = STRANGER
    """Who calls a server without authentication."""
    streams_only: bool = False
    """Whether the answer is an event stream even if it is the only message."""
    is_counted: bool = False
    """Whether it counts towards `Limits.max_calls`."""
    event_stream: EventStream | None = None
    tasks: set[asyncio.Task[None]] | None = None
    """Background work: watching for a disconnect, keeping the connection alive."""
    has_resources: bool = False
    """Whether `close` has something to do."""
    account: Account | None = None
    """The memory of a body or a response that is not small."""
    usage: Usage | None = None
    """Where the call is counted, if its caller has a share."""
    _watching: bool = False
    _written: float = 0.0
    """When the last piece of a JSON answer was written."""
    _reading: ReadingWatch | None = None

    def __init__(self, send: Send, receive: Receive, limits: Limits) -> None:
        self.send = send
        self.receive = receive
        self._limits = limits

    # While the call runs

    def facts(self, request: Any) -> MessageFacts | None:
        """Return the method, the version and the session of the request."""
        method = self.dialect.method_of(request)
        return None if method is None else self._facts(method)

    def _facts(self, method: str) -> MessageFacts:
        session = None if self.session is None else self.session.name
        return MessageFacts(method, self.dialect.version, "tcp", is_http=True, session=session)

    def code_of(self, error: RequestError) -> int:
        """Return the code of an error in the version of the request."""
        return self.dialect.code(error)

    async def notify(self, message: CallerMessage) -> None:
        """Send a message on the event stream; a client that takes no streams does not get it."""
        if self.takes_streams:
            await self.stream().write(self.dialect.notification(message, self.request_id))

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        """Ask on the event stream, and wait for the response, which comes as a request of its own."""
        assert self.session is not None
        write = self.stream().write
        return await self.session.questions.ask(question, self.dialect, write, task_id, facts=self._facts)

    async def close_stream(self) -> None:
        """Close the connection, if the client can resume the stream."""
        if self.takes_streams and self._resumable and not self.stream().detached:
            await self.stream().detach()

    @property
    def request_id(self) -> RequestId:
        """The id of the request; 0 if it has none."""
        return 0 if self.call is None else self.call.id

    def stream(self) -> EventStream:
        """Return the event stream of the response."""
        if self.event_stream is None:
            session = self.session if self._resumable else None
            self.event_stream = EventStream(
                self.send,
                None if session is None else session.create_stream,
                numbers_events=self.dialect.numbers_events,
            )
            self.has_resources = True
        return self.event_stream

    def tick(self, now: float) -> None:
        """Watch for a disconnect, and keep the connection alive, while a long call runs.

        Stop a client that does not read its answer: it must not occupy a place for ever.
        """
        if self._is_unread(now):
            self.stop("unread")
            return
        if self.phase != "running" or (self.event_stream is not None and self.event_stream.detached):
            return
        is_long = now - self.started >= TICK_SECONDS  # most of the calls that a tick meets end right after it
        if is_long and not self._watching and (self.dialect.closing_cancels or self.call is None):
            self._watching = True
            self._spawn(self._watch())
        events = self.event_stream
        if events is not None and events.waiting_since is not None:
            return
        written = self.started if events is None else events.written
        if self.takes_streams and now - written >= self._limits.keep_alive_interval:
            stream = self.stream()
            stream.written = now
            self._spawn(stream.keep_alive())

    def open_account(self, budget: MemoryBudget, share: str) -> Account:
        """Return the account of the exchange, on which it reserves memory until it ends."""
        if self.account is None:
            self.account = Account(budget, share)
            self.has_resources = True
        return self.account

    def write(self, body: bytes) -> bool:
        """Write a small JSON answer at once, and return whether that was possible."""
        return False

    async def send_answer(self, body: bytes) -> None:
        """Send a small JSON answer."""
        await send_json(self.send, 200, body)

    async def send_pieces(self, body: bytes) -> None:
        """Send a large JSON answer in pieces, for as long as the client goes on reading."""
        self.deadline = float("inf")
        await self.send({"type": "http.response.start", "status": 200, "headers": _head_of(body)})
        for piece, more in pieces(body):
            self._written = asyncio.get_running_loop().time()
            await self.send({"type": "http.response.body", "body": piece, "more_body": more})

    def _is_unread(self, now: float) -> bool:
        """Return whether the client has read nothing of the answer for `Limits.body_timeout` seconds."""
        written: float | None = None
        if self.event_stream is not None:
            written = self.event_stream.waiting_since
        elif self.phase == "answering":
            written = self._written
        if written is None:
            self._reading = None
            return False
        if self._reading is None:
            self._reading = ReadingWatch(self.receive, self._limits.body_timeout)
        return self._reading.is_stalled(now, written)

    def close(self) -> None:
        """Stop the background work, close the event stream, and release the memory."""
        if self.account is not None:
            self.account.close()
        if self.tasks is not None:
            for task in self.tasks:
                task.cancel()
        if self.event_stream is not None:
            self.event_stream.close()

    @property
    def _resumable(self) -> bool:
        return self.session is not None and self.dialect.resumable

    async def _watch(self) -> None:
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.stop("disconnected")
                return

    def _spawn(self, work: Any) -> None:
        if self.tasks is None:
            self.tasks = set()
            self.has_resources = True
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def _head_of(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of a JSON response, or of an empty one."""
    length = (b"content-length", b"%d" % len(body))
    return [(b"content-type", b"application/json"), length] if body else [length]
