"""One HTTP request and its response: JSON if the call ends without a word, else an event stream.

An exchange is the call that it carries. Owns its response, and notices when the caller goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from antiphon.model.question import Question
from antiphon.model.segment import CallerMessage
from antiphon.runtime.execution.call import Call
from antiphon.transport.server.http.event_stream import EventStream, Receive, Send
from antiphon.transport.server.http.sessions import Session
from antiphon.wire.server.dialect import Dialect

__all__ = ["Exchange", "send_json"]


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
    """A whole JSON response, or an empty one."""
    lines = [(b"content-length", b"%d" % len(body))]
    if body:
        lines.append((b"content-type", b"application/json"))
    for name, value in headers:
        lines.append((name.encode("latin-1"), value.encode("latin-1")))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


class Exchange(Call[Any]):
    """A call that came by HTTP."""

    dialect: Dialect
    session: Session | None = None
    streams_only: bool = False
    """Whether its answer is an event stream, even if there is nothing else to say."""
    is_counted: bool = False
    """Whether it counts towards the calls that may be under way at once."""
    outlet: EventStream | None = None
    answering: bool = False
    """Whether the answer is being sent, so that nothing more is to be said."""
    tasks: set[asyncio.Task[None]] | None = None
    """What is done on the side: watching for a caller that goes away, keeping the connection alive."""
    elsewhere: Awaitable[None] | None = None
    """What is to be told to other processes, of a message that is none of ours."""
    _watching: bool = False

    def __init__(self, send: Send, receive: Receive, keep_alive: float) -> None:
        self.send = send
        self.receive = receive
        self._keep_alive = keep_alive

    @property
    def streams(self) -> bool:
        """Whether the caller wants what is emitted as it comes, and can get it so."""
        return self.request_meta.wants_stream and self.takes_streams

    # While the call is under way

    async def notify(self, notification: CallerMessage) -> None:
        """Say something meanwhile; a caller that takes no streams does not hear it."""
        if self.takes_streams:
            await self.stream().write(self.dialect.notification(notification, self.id))

    async def ask(self, key: str, ask: Question, task_id: str | None = None) -> Any:
        """Put a question on the stream, and wait for the answer, which comes as a request of its own."""
        assert self.session is not None
        return await self.session.questions.put(ask, self.dialect, self.stream().write, task_id)

    async def close_stream(self) -> None:
        """Let go of the connection; the caller comes back for the rest, if it can."""
        if self.takes_streams and self._resumable and not self.stream().detached:
            await self.stream().detach()

    @property
    def known_dialect(self) -> Dialect | None:
        """Its dialect, once that is known."""
        return self.__dict__.get("dialect")

    @property
    def is_understood(self) -> bool:
        """Whether it is known what is asked for."""
        return "request" in self.__dict__

    def stream(self) -> EventStream:
        """Its event stream."""
        if self.outlet is None:
            resumable = self._resumable and self.session is not None
            self.outlet = EventStream(self.send, self.session.stream if resumable and self.session else None)
        return self.outlet

    def tick(self, now: float) -> None:
        """A call that takes long: watch for a caller that goes away, and keep the connection alive."""
        if not self.is_understood or self.answering or (self.outlet is not None and self.outlet.detached):
            return
        if not self._watching and (self.dialect.closing_cancels or self.request is None):
            self._watching = True
            self._spawn(self._watch())
        outlet = self.outlet
        if outlet is not None and outlet.waiting_since is not None:
            if now - outlet.waiting_since >= 2 * self._keep_alive:
                self.stop("disconnected")  # it is there and takes nothing: it may not keep its place for ever
            return
        written = self.started if outlet is None else outlet.written
        if self.takes_streams and now - written >= self._keep_alive:
            stream = self.stream()
            stream.written = now
            self._spawn(stream.keep_alive())

    def close(self) -> None:
        """The request is over, however it went."""
        if self.tasks is not None:
            for task in self.tasks:
                task.cancel()
        if self.outlet is not None:
            self.outlet.close()

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
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
