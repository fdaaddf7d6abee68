"""One client on a connection of its own, over which frames go both ways: standard streams, or memory.

Owns what was negotiated on the connection and the calls under way on it. Knows no bytes' way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET

from antiphon.errors import Busy, RequestError
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.question import Question
from antiphon.model.request import Initialize, Listen, RequestId
from antiphon.model.segment import CallerMessage
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call, SessionState
from antiphon.runtime.execution.supervisor import Supervised, Supervisor
from antiphon.transport.server import pipeline as writing
from antiphon.transport.server.active_calls import ActiveCalls
from antiphon.transport.server.pending_questions import PendingQuestions
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated
from antiphon.wire.versions import Dialects

__all__ = ["StreamConnection"]


class StreamConnection:
    """Serves one client; `write` takes whole frames, and may be called by several tasks at once."""

    def __init__(
        self, host: Engine, write: Callable[[bytes], Awaitable[None]], *, principal: Principal = ANONYMOUS
    ) -> None:
        self._host = host
        self._write = write
        self._principal = principal
        self._dialects = Dialects(host.info)
        self._negotiated: Negotiated | None = None
        self._peer = SessionState()
        self._questions = PendingQuestions()
        self._warden = Supervisor()
        self._calls = ActiveCalls()
        self._listening: set[Supervised] = set()
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
            self._calls.told(frame)
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
        call = _StreamCall(self._write, self._questions, request_id)
        self._warden.enter(call, asyncio.get_running_loop())
        dialect: Dialect | None = None
        request: Any = None
        try:
            try:
                dialect = call.dialect = self._dialects.choose(frame, None, self._negotiated)
                call.request_meta = dialect.request_meta(frame, self._negotiated)
                request = call.request = dialect.parse(frame)
                if len(self._warden) > self._host.limits.max_calls:
                    raise Busy("The server is at its limit of calls: try again.")
                call.principal, call.peer = self._principal, self._peer
                call.rounds, call.can_ask = dialect.rounds, not dialect.rounds
                self._calls[request_id] = call
                if type(request) is Listen:
                    self._listening.add(call)
                outcome = await self._outcome(call)
                if type(request) is Initialize:
                    self._initialized(request, dialect)
                answer = writing.response(dialect, request, request_id, outcome)
            except Exception as raised:
                error = self._host.error_of(call, raised)
                if dialect is None:
                    answer = jsonrpc.failure(request_id, error.code, error.message, error.data)
                elif request is None:
                    answer = dialect.error(request_id, error)
                else:
                    answer = writing.refusal(dialect, request, request_id, error)
        except asyncio.CancelledError:
            if call.stopped is None:
                raise
            call.absolve()
            return
        finally:
            self._warden.leave(call)
            self._listening.discard(call)
            if self._calls.get(request_id) is call:
                del self._calls[request_id]
        await self._write(answer)

    async def _outcome(self, call: Call[Any]) -> Any:
        try:
            return await self._host.handle(call)
        except asyncio.CancelledError:
            if call.stopped != "deadline":
                raise
            call.absolve()
            call.stopped = None
            return await self._host.overdue(call)

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


class _StreamCall(Call[Any]):
    """A call that came by a connection of its own."""

    dialect: Dialect

    def __init__(
        self, write: Callable[[bytes], Awaitable[None]], questions: PendingQuestions, request_id: RequestId
    ) -> None:
        self.id = request_id
        self._write = write
        self._questions = questions

    async def notify(self, notification: CallerMessage) -> None:
        """Say something meanwhile."""
        await self._write(self.dialect.notification(notification, self.id))

    async def ask(self, key: str, ask: Question, task_id: str | None = None) -> Any:
        """Put a question, and wait for the answer."""
        return await self._questions.put(ask, self.dialect, self._write, task_id)
