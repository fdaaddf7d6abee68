"""How an exchange ends: with an answer, with an error, or because it was stopped.

Owns the way of an answer to the client: on the event stream, at once or in pieces. Knows nothing about how a
request is read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from antiphon.errors import RequestError
from antiphon.model.request import Initialize
from antiphon.runtime.budget import MemoryBudget
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.failures import is_failure
from antiphon.transport.server.http.exchange import Exchange, send_json
from antiphon.transport.server.http.request_body import LATE_BODY, ClientGone
from antiphon.transport.server.http.sessions import Sessions
from antiphon.transport.server.http.unread import SMALL_BYTES, abort
from antiphon.transport.server.pipeline import Pipeline, stopped_by_shutdown
from antiphon.wire import jsonrpc
from antiphon.wire.server.dialect import Negotiated

__all__ = ["Ending"]

_HOST_SHUTDOWN = "graceful shutdown"
"""The words in the cancellation with which uvicorn stops requests at the end of its own timeout."""


class Ending:
    """Ends the exchanges of one endpoint."""

    def __init__(self, pipeline: Pipeline, sessions: Sessions, budget: MemoryBudget) -> None:
        self._pipeline = pipeline
        self._sessions = sessions
        self._budget = budget

    async def answer(self, exchange: Exchange, call: Call[Any], answer: bytes) -> None:
        """Send an answer: on the event stream if there is one, with a session id if it opens a session."""
        request = call.request
        is_small = len(answer) <= SMALL_BYTES
        if not is_small:
            exchange.open_account(self._budget, call.principal.share).reserve(len(answer), "the response")
        if exchange.event_stream is not None or exchange.streams_only:
            exchange.phase = "answering"
            exchange.deadline = float("inf")  # from here on, only a client that stops reading is too slow
            await exchange.stream().finish(answer)
        elif type(request) is Initialize:
            negotiated = Negotiated(exchange.dialect.version, request.capabilities, request.client_info)
            token = self._sessions.create(negotiated, call.principal)  # an error if there is no memory for it
            exchange.phase = "answering"
            await send_json(exchange.send, 200, answer, (("mcp-session-id", token),))
        else:
            exchange.phase = "answering"
            if not is_small:
                await exchange.send_pieces(answer)
            elif not exchange.write(answer):
                await exchange.send_answer(answer)

    async def fail(self, exchange: Exchange, error: BaseException) -> None:
        """Answer after an exception; raises the exception if the request was not stopped from here."""
        if isinstance(error, Exception) or is_failure(error, exchange):
            await self._refuse(exchange, error)
        elif isinstance(error, asyncio.CancelledError):
            await self._stopped(exchange, str(error))
        else:
            raise error

    async def _refuse(self, exchange: Exchange, raised: BaseException) -> None:
        """Answer with the error of an exception."""
        if exchange.phase == "answering":
            raise raised
        if isinstance(raised, ClientGone):
            return
        dialect, call = None if exchange.phase == "reading" else exchange.dialect, exchange.call
        exchange.phase = "answering"
        error, body = self._pipeline.refuse(raised, dialect, call)
        status = error.status if dialect is None else dialect.status(error, understood=call is not None)
        if exchange.event_stream is not None:
            await exchange.event_stream.finish(body)
        else:
            await send_json(exchange.send, status, body, error.headers)

    async def _stopped(self, exchange: Exchange, message: str) -> None:
        """Answer after the task was cancelled, by the supervisor or by the server that runs this app.

        `message` is the message of the cancellation.
        """
        reason = exchange.stop_reason
        if reason is None:
            if _HOST_SHUTDOWN not in message:
                raise asyncio.CancelledError
            reason = "shutdown"
        exchange.uncancel()
        exchange.stop_reason = None
        if reason == "unread" or (reason == "deadline" and exchange.phase == "answering"):
            exchange.stop_reason = reason  # the next tick must not stop it again
            await abort(exchange.receive)
            return
        if exchange.phase == "answering":
            return
        if reason == "shutdown":
            if exchange.phase == "running" and exchange.call is None:
                await exchange.stream().end()  # a stream that a client opened by GET
            else:
                await self._refuse(exchange, stopped_by_shutdown())
        elif exchange.phase != "running":
            if reason == "deadline":
                body = jsonrpc.failure(None, -32600, LATE_BODY)
                await send_json(exchange.send, 408, body, (("connection", "close"),))
        elif reason == "deadline" and exchange.call is not None:
            try:
                answer = await self._pipeline.overdue(exchange.dialect, exchange.call)
                await self.answer(exchange, exchange.call, answer)
            except RequestError as error:
                await self._refuse(exchange, error)
        elif reason == "cancelled":
            await exchange.stream().end()
