"""Questions that the server sent to a client and that wait for their answers.

Owns the open questions of one session or connection. It must not know which transport carries them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import UNSET

from antiphon.errors import Failure
from antiphon.instrumentation import current_trace_context, find_instruments
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.question import Question
from antiphon.model.request import RequestId
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect

__all__ = ["PendingQuestions"]


class PendingQuestions:
    """The open questions of one client. `transport` is how they travel, as spans name it."""

    __slots__ = ("_count", "_open", "_prefix", "new_id", "transport")

    def __init__(
        self,
        new_id: Callable[[], str] | None = None,
        *,
        transport: Literal["tcp", "pipe"] | None = None,
    ) -> None:
        self._prefix = f"ask-{secrets.token_hex(8)}-"
        self._count = 0
        self.new_id = new_id or self._next_id
        self.transport = transport
        self._open: dict[str, asyncio.Future[Any]] = {}

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def has_asked(self, question_id: RequestId | None) -> bool:
        """Whether a question was asked here with this id, if the ids are those of this object."""
        return isinstance(question_id, str) and question_id.startswith(self._prefix)

    @property
    def are_open(self) -> bool:
        """Whether a question waits for its answer."""
        return bool(self._open)

    def is_open(self, question_id: RequestId | None) -> bool:
        """Whether the question with this id was asked here, and waits for its answer."""
        future = self._open.get(str(question_id))
        return future is not None and not future.done()

    async def ask(
        self,
        question: Question,
        dialect: Dialect,
        write: Callable[[bytes], Awaitable[None]],
        task_id: str | None = None,
        *,
        facts: Callable[[str], MessageFacts],
    ) -> Any:
        """Send a question, and return the response; raises `Failure` if the client responds with an error.

        `facts` returns the facts about a message of a method, for its span.
        """
        request_id = self.new_id()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[request_id] = future
        try:
            method, params = dialect.ask(question, task_id, question_id=request_id)
            instruments = find_instruments("client")
            if instruments is None:
                await write(jsonrpc.request(request_id, method, params))
                return await future
            with instruments.operation(facts(method), request_id=request_id):
                dialect.add_meta(params, current_trace_context())
                await write(jsonrpc.request(request_id, method, params))
                return await future
        finally:
            del self._open[request_id]

    def answer(self, frame: Frame) -> bool:
        """Deliver a response to its question; return false if the question was not asked here."""
        future = self._open.get(str(frame.request_id))
        if future is None or future.done():
            return False
        if frame.error is UNSET:
            future.set_result(frame.result)
        else:
            error = frame.error if isinstance(frame.error, dict) else {}
            future.set_exception(
                Failure(f"The client did not answer: {error.get('message', 'it gave no reason')}")
            )
        return True
