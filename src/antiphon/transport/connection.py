"""One client on a connection of its own, over which frames go both ways: standard streams, or memory.

Owns what was negotiated on the connection and the calls under way on it. Knows no bytes' way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.errors import Busy, RequestError
from antiphon.model.ask import Ask
from antiphon.model.notification import Notification
from antiphon.model.party import ANONYMOUS, Principal
from antiphon.model.request import Cancel, Initialize, Listen, RequestId
from antiphon.runtime.call import Call, Peer
from antiphon.runtime.host import Host
from antiphon.runtime.warden import Warden, Watched
from antiphon.transport import writing
from antiphon.transport.questions import Questions
from antiphon.wire import jsonrpc
from antiphon.wire.dialect import Dialect, Negotiated
from antiphon.wire.dialects import Dialects
from antiphon.wire.jsonrpc import Frame

__all__ = ["Connection"]


class Connection:
    """Serves one client; `write` takes whole frames, and may be called by several tasks at once."""

    def __init__(
        self, host: Host, write: Callable[[bytes], Awaitable[None]], *, principal: Principal = ANONYMOUS
    ) -> None:
        self._host = host
        self._write = write
        self._principal = principal
        self._dialects = Dialects(host.info)
        self._negotiated: Negotiated | None = None
        self._peer = Peer()
        self._questions = Questions()
        self._warden = Warden()
        self._calls: dict[RequestId, Watched] = {}
        self._listening: set[Watched] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hearing: asyncio.Task[None] | None = None

    def receive(self, data: bytes | bytearray | str) -> None:
        """Take one frame; what answers it is written later."""
        try:
            frame = jsonrpc.decode(data)
        except RequestError as error:
            self._spawn(self._write(jsonrpc.failure(error.request_id, error.code, error.message, error.data)))
            return
        request_id = frame.request_id
        if frame.method is UNSET:
            self._questions.answer(frame)
            return
        if request_id is None:
            self._told(frame)
        else:
            self._spawn(self._serve(frame, request_id))

    async def close(self, *, within: float) -> None:
        """The client sends no more: let its calls end, for `within` seconds, then stop them."""
        for watched in tuple(self._listening):
            watched.stop("cancelled")
        if not await self._warden.drained(within):
            self._warden.stop("shutdown")
        if self._hearing is not None:
            self._hearing.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    async def _serve(self, frame: Frame, request_id: RequestId) -> None:
        watched = self._warden.enter()
        dialect: Dialect | None = None
        request: Any = None
        try:
            dialect = self._dialects.choose(frame, None, self._negotiated)
            terms = dialect.terms(frame, self._negotiated)
            request = dialect.parse(frame)
            if len(self._warden) > self._host.limits.calls:
                raise Busy("The server is at its limit of calls: try again.")
            voice = _Voice(self._write, dialect, request_id, self._questions)
            call: Call[Any] = Call(
                request,
                id=request_id,
                terms=terms,
                principal=self._principal,
                watched=watched,
                notify=voice.notify,
                peer=self._peer,
                rounds=dialect.rounds,
                ask=None if dialect.rounds else voice.ask,
            )
            self._calls[request_id] = watched
            if type(request) is Listen:
                self._listening.add(watched)
            outcome = await self._host.handle(call)
            if type(request) is Initialize:
                self._initialized(request, dialect)
            frame_out = writing.response(dialect, request, request_id, outcome)
        except RequestError as error:
            if dialect is None:
                frame_out = jsonrpc.failure(request_id, error.code, error.message, error.data)
            elif request is None:
                frame_out = dialect.error(request_id, error)
            else:
                frame_out = writing.refusal(dialect, request, request_id, error)
        except asyncio.CancelledError:
            if watched.stopped is None:
                raise
            watched.absolve()
            return
        finally:
            self._warden.leave(watched)
            self._listening.discard(watched)
            if self._calls.get(request_id) is watched:
                del self._calls[request_id]
        await self._write(frame_out)

    def _told(self, frame: Frame) -> None:
        if frame.method != "notifications/cancelled":
            return
        try:
            cancel = msgspec.convert(frame.params, Cancel)
        except msgspec.ValidationError:
            return
        watched = self._calls.get(cancel.request_id)
        if watched is not None:
            watched.stop("cancelled")

    def _initialized(self, request: Initialize, dialect: Dialect) -> None:
        self._negotiated = Negotiated(dialect.version, request.capabilities, request.client_info)
        if self._hearing is not None:
            self._hearing.cancel()
        self._hearing = self._spawn(self._tell_changes(dialect))

    async def _tell_changes(self, dialect: Dialect) -> None:
        with self._host.changes.listen(self._peer.wants) as listener:
            async for change in listener:
                await self._write(dialect.notification(change, None))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Voice:
    """What one call says and asks on the connection."""

    __slots__ = ("_dialect", "_id", "_questions", "_write")

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        dialect: Dialect,
        request_id: RequestId,
        questions: Questions,
    ) -> None:
        self._write = write
        self._dialect = dialect
        self._id = request_id
        self._questions = questions

    async def notify(self, notification: Notification) -> None:
        await self._write(self._dialect.notification(notification, self._id))

    async def ask(self, key: str, ask: Ask) -> Any:
        return await self._questions.put(ask, self._dialect, self._write)
