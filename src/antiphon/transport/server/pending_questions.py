"""Questions put to a client while a call waits, until their answers come: the connection as the carrier.

Owns the questions that are open on one session or connection.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET

from antiphon.errors import Failure
from antiphon.model.question import Question
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect

__all__ = ["PendingQuestions"]


class PendingQuestions:
    """The open questions of one client."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[Any]] = {}

    async def put(
        self,
        ask: Question,
        dialect: Dialect,
        write: Callable[[bytes], Awaitable[None]],
        task_id: str | None = None,
    ) -> Any:
        """Ask, and wait for the response; raises `Failure` if the client cannot give one."""
        request_id = f"ask-{secrets.token_hex(8)}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[request_id] = future
        try:
            method, params = dialect.ask(ask, task_id, question_id=request_id)
            await write(jsonrpc.request(request_id, method, params))
            return await future
        finally:
            del self._open[request_id]

    def answer(self, frame: Frame) -> bool:
        """Take a response; false for one that answers nothing here."""
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
