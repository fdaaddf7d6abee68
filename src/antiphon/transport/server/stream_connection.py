"""A client on a connection of its own, on which both sides send frames: standard streams, or memory.

Owns the negotiated version and the running calls of the connection. It must not know how the bytes of a
frame travel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import UNSET

from antiphon.errors import RequestError
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.question import Question
from antiphon.model.request import LISTENING_REQUESTS, Initialize, RequestId, RequestMeta
from antiphon.model.segment import CallerMessage
from antiphon.runtime.budget import SMALL_MESSAGE_BYTES, Account, decoded_size
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call, Caller, SessionState
from antiphon.runtime.execution.failures import is_failure
from antiphon.runtime.execution.supervisor import Supervised, Supervisor
from antiphon.transport.server.active_calls import ActiveCalls
from antiphon.transport.server.pending_questions import PendingQuestions
from antiphon.transport.server.pipeline import Pipeline, stopped_by_shutdown
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated

__all__ = ["StreamConnection"]

_CLOSE_SECONDS = 1.0
"""How long stopped calls may take to unwind when the connection is closed."""

_NO_META = RequestMeta()

Write = Callable[[bytes], Awaitable[None]]


class StreamConnection:
    """Serves one client. Several tasks may call `write` at once, each with a whole frame."""

    def __init__(
        self,
        engine: Engine,
        write: Write,
        *,
        principal: Principal = ANONYMOUS,
        transport: Literal["pipe"] | None = None,
    ) -> None:
        self._engine = engine
        self._pipeline = Pipeline(engine)
        self._write = write
        self._principal = principal
        self._opened = time.monotonic()
        self._negotiated: Negotiated | None = None
        self._account = Account(engine.budget, principal.share)
        self._session_state = SessionState(engine.limits, self._account)
        self._questions = PendingQuestions(transport=transport)
        self._supervisor = Supervisor()
        self._calls = ActiveCalls()
        self._listeners: set[Supervised] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending_changes: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[None] | None = None
        """Takes the last answer that was posted."""

    def receive(self, data: bytes | bytearray | str) -> None:
        """Handle one frame. The response is written later."""
        try:
            frame = jsonrpc.decode(data)
        except RequestError as error:
            self._spawn(self._write(jsonrpc.failure(error.request_id, error.code, error.message, error.data)))
            return
        request_id = frame.request_id
        size = 0 if len(data) <= SMALL_MESSAGE_BYTES else decoded_size(data)
        if frame.method is UNSET:
            if not self._questions.answer(frame) and not self._questions.has_asked(frame.request_id):
                self._taking = self._spawn(self._take_answer(frame, self._taking))
            return
        if request_id is None:
            self._calls.handle_notification(frame)
        else:
            self._spawn(self._serve(frame, request_id, size, self._taking))

    @property
    def unfinished(self) -> int:
        """The number of frames that are being handled, or whose response is not written."""
        return len(self._tasks)

    async def close(self, *, within: float) -> None:
        """Wait up to `within` seconds for running calls, then stop them."""
        for listener in tuple(self._listeners):
            listener.stop("cancelled")
        if not await self._supervisor.drained(within):
            self._supervisor.stop("shutdown")
        if self._sending_changes is not None:
            self._sending_changes.cancel()
        self._account.close()
        self._engine.telemetry.record_session(time.monotonic() - self._opened, self._session_facts)
        if (ending := self._session_state.close()) is not None:
            self._tasks.add(ending)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    async def _serve(
        self, frame: Frame, request_id: RequestId, size: int, answer_before: asyncio.Task[None] | None
    ) -> None:
        if answer_before is not None:
            await asyncio.wait({answer_before})
        account: Account | None = None
        work = Supervised()
        self._supervisor.enter(work, asyncio.get_running_loop())
        dialect: Dialect | None = None
        call: Call[Any] | None = None
        try:
            if size:
                account = Account(self._engine.budget, self._principal.share)
                account.reserve(size, "this message")
            dialect = self._pipeline.dialects.choose(frame, None, self._negotiated)
            request, request_meta = self._pipeline.read(frame, dialect, self._negotiated, None)
            self._pipeline.check_room(len(self._supervisor) - 1)
            call = self._pipeline.call(
                dialect,
                request,
                request_meta,
                request_id,
                _StreamCaller(self._write, self._questions, dialect, request_id),
                work,
                self._principal,
                self._session_state,
            )
            self._calls[request_id] = work
            if type(request) in LISTENING_REQUESTS:
                self._listeners.add(work)
            answer = await self._pipeline.serve(dialect, call)
            if type(request) is Initialize:
                self._initialized(request, dialect)
        except BaseException as raised:
            if is_failure(raised, work):
                _, answer = self._pipeline.refuse(raised, dialect, call, request_id)
            elif isinstance(raised, asyncio.CancelledError) and work.stop_reason is not None:
                work.uncancel()
                if work.stop_reason != "shutdown":
                    return
                _, answer = self._pipeline.refuse(stopped_by_shutdown(), dialect, call, request_id)
            else:
                raise
        finally:
            if account is not None:
                account.close()
            self._supervisor.leave(work)
            self._listeners.discard(work)
            self._calls.remove(request_id, work)
        await self._write(answer)

    async def _take_answer(self, frame: Frame, answer_before: asyncio.Task[None] | None) -> None:
        """Take a response that answers the question of a task, which was asked on no connection.

        Nothing answers a response, except that an error is written without an id. It counts before what the
        client sends next.
        """
        if answer_before is not None:
            await asyncio.wait({answer_before})
        work = Supervised()
        self._supervisor.enter(work, asyncio.get_running_loop())
        dialect: Dialect | None = None
        try:
            dialect = self._pipeline.dialects.choose(frame, None, self._negotiated)
            request = dialect.answered(frame)
            if request is None:
                return
            self._pipeline.check_room(len(self._supervisor) - 1)
            caller = _StreamCaller(self._write, self._questions, dialect, 0)
            await self._engine.handle(
                self._pipeline.call(dialect, request, _NO_META, 0, caller, work, self._principal)
            )
        except BaseException as raised:
            if is_failure(raised, work):
                _, refusal = self._pipeline.refuse(raised, dialect, None)
                await self._write(refusal)
            elif isinstance(raised, asyncio.CancelledError) and work.stop_reason is not None:
                work.uncancel()
            else:
                raise
        finally:
            self._supervisor.leave(work)

    @property
    def _session_facts(self) -> MessageFacts:
        version = None if self._negotiated is None else self._negotiated.version
        return MessageFacts("", version, self._questions.transport)

    def _initialized(self, request: Initialize, dialect: Dialect) -> None:
        self._negotiated = Negotiated(dialect.version, request.capabilities, request.client_info)
        if self._sending_changes is not None:
            self._sending_changes.cancel()
        self._sending_changes = self._spawn(self._send_changes(dialect))

    async def _send_changes(self, dialect: Dialect) -> None:
        wants = self._engine.visible_changes(self._session_state.is_subscribed_to, self._principal)
        with self._engine.changes.listen(wants) as listener:
            async for change in listener:
                await self._write(dialect.notification(change, None))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _StreamCaller(Caller):
    """Sends messages and questions of a call to the client of a connection."""

    def __init__(
        self, write: Write, questions: PendingQuestions, dialect: Dialect, request_id: RequestId
    ) -> None:
        self._write = write
        self._questions = questions
        self._dialect = dialect
        self._request_id = request_id
        self.can_ask = not dialect.rounds

    def facts(self, request: Any) -> MessageFacts | None:
        """Return the method and the version of the request."""
        method = self._dialect.method_of(request)
        return None if method is None else self._facts(method)

    def _facts(self, method: str) -> MessageFacts:
        return MessageFacts(method, self._dialect.version, self._questions.transport)

    def code_of(self, error: RequestError) -> int:
        """Return the code of an error in the version of the request."""
        return self._dialect.code(error)

    async def notify(self, message: CallerMessage) -> None:
        """Send a message to the client."""
        await self._write(self._dialect.notification(message, self._request_id))

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        """Ask the client, and wait for its response."""
        return await self._questions.ask(question, self._dialect, self._write, task_id, facts=self._facts)
