"""What a server of another library says to the caller while it serves one request.

Turns its requests and notifications, as the protocol writes them, into those of this library. It must not
know which library the server was written with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from antiphon.errors import BadAnswer, InvalidRequest, MethodNotFound
from antiphon.model.capabilities import ANSWERS_EVERYTHING
from antiphon.model.identity import LogLevel
from antiphon.model.notification import ListChanged, Log, Progress, ResourceUpdated
from antiphon.model.question import Answer, Question
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.wire.client.results import read_notification
from antiphon.wire.questions import ELICITATION, ROOTS, SAMPLING, plain_answer, read_question

__all__ = ["Ask", "Changes", "Exchange"]

Changes = Callable[[ListChanged | ResourceUpdated], None]
"""Takes note that a list or a resource of the adopted server has changed."""

Ask = Callable[[Context, Question], Awaitable[Answer]]
"""Asks a question, and returns the answer as it came."""


class Exchange:
    """One request that an adopted server serves, and the way back to its caller."""

    __slots__ = ("_ask", "_changes", "_ctx", "call")

    def __init__(
        self, call: Call[Any] | None, changes: Changes, ctx: Context | None = None, ask: Ask = Context.ask
    ) -> None:
        self.call = call
        """The call; `None` for requests that this library makes itself, when the server starts."""
        self._changes = changes
        self._ctx = ctx
        self._ask = ask

    @property
    def can_ask(self) -> bool:
        """Whether the request can have questions: tools, resources and prompts can, and lists cannot."""
        return self._ctx is not None

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the caller, as the protocol writes them."""
        if self.call is None:
            return ANSWERS_EVERYTHING
        declared = self.call.request_meta.capabilities
        # A task waits for a client that can answer.
        return {**ANSWERS_EVERYTHING, **declared} if self.call.carrier.anyone_answers else declared

    @property
    def client(self) -> dict[str, Any] | None:
        """The name and version of the client, as the protocol writes them; `None` if it reports none."""
        client = None if self.call is None else self.call.request_meta.client
        return None if client is None else msgspec.to_builtins(client)

    @property
    def log_level(self) -> LogLevel | None:
        """The lowest level of log messages that the caller wants; those of a task go to the server's log."""
        if self.call is None:
            return None
        return self.call.log_level if self.call.task_id is None else "debug"

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the caller's response to a request of the server.

        Raises `RequestError`: `MethodNotFound` for a method that clients do not have, `MissingCapability` if
        this client did not declare it, `InvalidRequest` for a question that cannot be asked or read.
        """
        if method == "ping":
            return {}
        if self._ctx is None:
            raise InvalidRequest("Only tools, resources and prompts can ask the caller.")
        try:
            question = read_question(method, {"method": method, "params": dict(params or {})})
        except BadAnswer as error:
            known = method in (ELICITATION, SAMPLING, ROOTS)
            raise (InvalidRequest if known else MethodNotFound)(str(error)) from None
        return plain_answer(await self._ask(self._ctx, question))

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification of the server on; one that clients do not have is dropped."""
        message = read_notification(method, params or {})
        if isinstance(message, ListChanged | ResourceUpdated):
            self._changes(message)
        elif self._ctx is None:
            return
        elif isinstance(message, Progress):
            await self._ctx.progress(message.progress, message.total, message.message)
        elif isinstance(message, Log):
            await self._ctx.log(message.level, message.data, logger=message.logger)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller."""
        if self._ctx is not None:
            await self._ctx.progress(progress, total, message)
