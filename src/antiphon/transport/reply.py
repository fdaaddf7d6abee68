"""One HTTP response: JSON if the call ends without a word, an event stream from the first word on.

Owns the response of one request, and notices when the caller goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from antiphon.model.ask import Ask
from antiphon.model.notification import Notification
from antiphon.model.request import RequestId
from antiphon.runtime.warden import Watched
from antiphon.transport.questions import Questions
from antiphon.transport.replay import Replay
from antiphon.wire import sse
from antiphon.wire.dialect import Dialect

__all__ = ["Receive", "Reply", "Send", "send_json"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

_JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
    """A whole JSON response, or an empty one."""
    lines = [(b"content-length", b"%d" % len(body))]
    if body:
        lines.append(_JSON)
    for name, value in headers:
        lines.append((name.encode("latin-1"), value.encode("latin-1")))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


class Reply:
    """The answer to one request, while it is being made."""

    __slots__ = (
        "_closing_cancels",
        "_detached",
        "_dialect",
        "_id",
        "_keep_alive",
        "_lock",
        "_new_replay",
        "_questions",
        "_receive",
        "_replay",
        "_send",
        "_started",
        "_streams",
        "_tasks",
        "_watched",
        "_watching",
        "_written",
    )

    def __init__(
        self,
        send: Send,
        receive: Receive,
        watched: Watched,
        dialect: Dialect,
        request_id: RequestId | None,
        *,
        streams: bool,
        keep_alive: float,
        closing_cancels: bool = True,
        new_replay: Callable[[], Replay] | None = None,
        questions: Questions | None = None,
    ) -> None:
        self._send = send
        self._receive = receive
        self._watched = watched
        self._dialect = dialect
        self._id = request_id
        self._streams = streams
        self._keep_alive = keep_alive
        self._closing_cancels = closing_cancels
        self._new_replay = new_replay
        self._questions = questions
        self._replay: Replay | None = None
        self._lock: asyncio.Lock | None = None
        self._started = False
        self._detached = False
        self._watching = False
        self._written = watched.started
        self._tasks: set[asyncio.Task[None]] | None = None
        watched.tick = self.tick

    # While the call is under way

    async def notify(self, notification: Notification) -> None:
        """Say something meanwhile; a caller that takes no streams does not hear it."""
        if self._streams:
            await self._event(self._dialect.notification(notification, self._id))

    async def ask(self, key: str, ask: Ask) -> Any:
        """Put a question on the stream, and wait for the answer, which comes as a request of its own."""
        assert self._questions is not None
        return await self._questions.put(ask, self._dialect, self._event)

    async def detach(self) -> None:
        """Let go of the connection; the caller comes back for the rest, if it can."""
        if not self._streams or self._new_replay is None or self._detached:
            return
        async with self._locked():
            await self._start()
            self._detached = True
            await self._send({"type": "http.response.body", "body": b""})

    def tick(self, now: float) -> None:
        """A call that takes long: watch for a caller that goes away, and keep the connection alive."""
        if self._detached:
            return
        if not self._watching and self._closing_cancels:
            self._watching = True
            self._spawn(self._watch())
        if self._streams and now - self._written >= self._keep_alive:
            self._written = now
            self._spawn(self._comment())

    def close(self) -> None:
        """The request is over, however it went."""
        if self._tasks:
            for task in self._tasks:
                task.cancel()
        if self._replay is not None:
            self._replay.end()

    # The end

    async def answer(
        self, body: bytes, *, status: int = 200, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """The last word: a response or an error."""
        if self._lock is None:
            await send_json(self._send, status, body, headers)
        else:
            await self._event(body, last=True)

    async def stream(self, body: bytes) -> None:
        """The last word, as an event stream in any case."""
        await self._event(body, last=True)

    async def nothing(self) -> None:
        """End without a word: what answers a request that was cancelled."""
        async with self._locked():
            await self._start()
            await self._put(b"", last=True)

    # Writing

    async def open(self) -> None:
        """Begin the event stream, with nothing on it yet."""
        async with self._locked():
            await self._start()

    async def raw(self, event: bytes) -> None:
        """Pass on an event that is already written."""
        async with self._locked():
            await self._start()
            await self._put(event)

    async def _event(self, data: bytes, *, last: bool = False) -> None:
        async with self._locked():
            await self._start()
            event = sse.event(data) if self._replay is None else self._replay.add(data, last=last)
            await self._put(event, last=last)

    async def _comment(self) -> None:
        async with self._locked():
            await self._start()
            await self._put(sse.COMMENT)

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})
        first = b""
        if self._new_replay is not None:
            self._replay = self._new_replay()
            first = self._replay.prime()
        await self._put(first)

    async def _put(self, event: bytes, *, last: bool = False) -> None:
        if self._detached or (self._replay is not None and self._replay.taken_up):
            return
        self._written = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.body", "body": event, "more_body": not last})

    def _locked(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._watched.stop("disconnected")
                return

    def _spawn(self, work: Any) -> None:
        if self._tasks is None:
            self._tasks = set()
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
