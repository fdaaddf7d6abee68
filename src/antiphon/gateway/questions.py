"""Passes the questions of an upstream server on to the caller of the call that it is serving.

For versions in which a server asks on the connection. There a question does not say which call it belongs
to, so it goes to the one call that has the connection for itself. Must not know which version the caller
speaks: the context of the call asks in the caller's own way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from antiphon.client.callbacks import RequestHandler
from antiphon.errors import InvalidRequest
from antiphon.model.capabilities import ANSWERS_EVERYTHING, can_answer
from antiphon.model.question import ListRoots, Question
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context, call_of
from antiphon.wire.questions import ELICITATION, ROOTS, SAMPLING, plain_answer, read_question

__all__ = ["UpstreamQuestions", "answer_question", "current_context", "may_be_asked"]

current_context: ContextVar[Context | None] = ContextVar("antiphon_gateway_context", default=None)
"""The call on whose behalf a request is sent, for messages that come on the stream of the request."""


def may_be_asked(call: Call[Any]) -> bool:
    """Return whether the caller, or another client of a task's owner, can answer any question."""
    declared = call.request_meta.capabilities
    return call.carrier.anyone_answers or any(name in declared for name in ANSWERS_EVERYTHING)


async def answer_question(question: Question, context: Context, key: str | None = None) -> dict[str, Any]:
    """Ask the caller, and return the response for the upstream server.

    `key` is the name that the server gave the question, if it has one. A caller without roots has none, so it
    is not asked for them. Raises `MissingCapability` if the caller cannot answer another question.
    """
    call = call_of(context)
    if isinstance(question, ListRoots) and not _has_roots(call, question):
        return _NO_ROOTS
    return plain_answer(await context.ask(question, key=key))


def _has_roots(call: Call[Any], question: ListRoots) -> bool:
    return call.carrier.anyone_answers or can_answer(call.request_meta.capabilities, question)


_NO_ROOTS: dict[str, Any] = {"roots": []}


class UpstreamQuestions:
    """Answers the questions that come on one connection."""

    def __init__(self) -> None:
        self.holder: Context | None = None
        """The call that has the connection for itself; `None` if the connection is free or shared."""
        self._open: dict[asyncio.Future[dict[str, Any]], float] = {}

    @property
    def waiting_since(self) -> float | None:
        """When the oldest open question came, by the clock of the event loop; `None` if none is open."""
        return min(self._open.values(), default=None)

    def release(self) -> None:
        """End the questions of the call that had the connection for itself: it has ended."""
        self.holder = None
        for answer in self._open:
            answer.cancel()

    @property
    def handlers(self) -> Mapping[str, RequestHandler]:
        """The handlers by method, for the client of the connection."""

        def handler(method: str) -> RequestHandler:
            async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
                return await self._answer(method, params)

            return answer

        return {method: handler(method) for method in (ELICITATION, SAMPLING, ROOTS)}

    async def _answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the caller; raises `InvalidRequest` for a question that belongs to no caller."""
        question = read_question(method, {"method": method, "params": dict(params)})
        if self.holder is not None:
            return await self._ask(question, self.holder)
        if isinstance(question, ListRoots):  # some servers ask for roots as soon as they are connected
            return _NO_ROOTS
        raise InvalidRequest(
            "Nobody can answer this: the caller of this request declared no capability for it."
        )

    async def _ask(self, question: Question, holder: Context) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        answer = loop.create_task(answer_question(question, holder))
        self._open[answer] = loop.time()
        try:
            await asyncio.wait({answer})
            if answer.cancelled():
                raise InvalidRequest("The call that this question belongs to has ended.")
            return answer.result()
        finally:
            answer.cancel()
            del self._open[answer]
