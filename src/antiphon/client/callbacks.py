"""The requests that a server makes of its client, and who answers them.

A table of handlers by method. On versions where a server asks on an open stream, each request is answered
in a task of its own, of which there are only so many.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.errors import AntiphonError, InternalError, InvalidParams, MethodNotFound, RequestError
from antiphon.model.base import Value
from antiphon.model.capabilities import capabilities_for
from antiphon.model.form import defaults
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Sample
from antiphon.model.request import RequestId
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.questions import ELICITATION, ROOTS, SAMPLING, accept, refuse, write_answer

__all__ = [
    "Callbacks",
    "ElicitCallback",
    "Elicitation",
    "RequestHandler",
    "Roots",
    "SampleCallback",
    "answering_with",
]

logger = logging.getLogger("antiphon.client")

RequestHandler: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers a request of the server's: its params in, its result out; a `RequestError` refuses it."""


class Elicitation(Value, frozen=True):
    """A question for the person at the client: a form to fill in, or a page to visit."""

    message: str
    requested_schema: dict[str, Any] = {}
    mode: Literal["form", "url"] = "form"
    url: str | None = None
    elicitation_id: str | None = None


Answer: TypeAlias = Mapping[str, Any] | Literal["decline", "cancel"]
ElicitCallback: TypeAlias = Callable[[Elicitation], Awaitable[Answer] | Answer]
"""Asks the person: what they filled in, or that they said no, or that they went away."""


Message: TypeAlias = Mapping[str, Any] | str
SampleCallback: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Message] | Message]
"""Asks a model: the params of `sampling/createMessage` in, its text or its whole result out."""

Folders: TypeAlias = Sequence[str | Mapping[str, Any]]
Roots: TypeAlias = Folders | Callable[[], Awaitable[Folders] | Folders]
"""The folders that the client works in, or who tells them: addresses, or roots as on the wire."""


async def _settled(found: Any) -> Any:
    """What a function gave, whether it is async or not."""
    return await found if inspect.isawaitable(found) else found


def elicitation(elicit: ElicitCallback) -> RequestHandler:
    """The handler of `elicitation/create`. What a person left out gets the default of its schema."""

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            question = msgspec.convert(params, Elicitation)
        except msgspec.ValidationError as error:
            raise InvalidParams(f"Invalid params for elicitation/create: {error}.") from None
        given: Answer = await _settled(elicit(question))
        if isinstance(given, str):
            return refuse(given)
        if question.mode == "url":
            return accept()
        return accept({**defaults(question.requested_schema), **given})

    return answer


def sampling(sample: SampleCallback) -> RequestHandler:
    """The handler of `sampling/createMessage`. A plain text becomes a message of the assistant's."""

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        said: Message = await _settled(sample(params))
        return write_answer(Sample(params), said)

    return answer


def listing(roots: Roots) -> RequestHandler:
    """The handler of `roots/list`. A plain string is an address."""

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        found = await _settled(roots()) if callable(roots) else roots
        return write_answer(ListRoots(), found)

    return answer


def answering_with(
    elicit: ElicitCallback | None, sample: SampleCallback | None, roots: Roots | None
) -> tuple[dict[str, RequestHandler], dict[str, Any]]:
    """The handlers for these, by method, and the capabilities that they give a client."""
    table: dict[str, RequestHandler] = {}
    able: dict[str, Any] = {}
    if elicit is not None:
        table[ELICITATION] = elicitation(elicit)
        able |= capabilities_for(Elicit, OpenUrl)
    if sample is not None:
        table[SAMPLING] = sampling(sample)
        able |= capabilities_for(Sample)
    if roots is not None:
        table[ROOTS] = listing(roots)
        able |= capabilities_for(ListRoots)
    return table, able


class Callbacks:
    """The table, and the answers that are being worked on."""

    def __init__(self, table: Mapping[str, RequestHandler], *, at_once: int = 64) -> None:
        self._table: dict[str, RequestHandler] = {"ping": _pong, **table}
        self._at_once = at_once
        self._working: dict[RequestId, asyncio.Task[None]] = {}

    def knows(self, method: str) -> bool:
        """Whether there is someone to answer a method."""
        return method in self._table

    @property
    def know_anything(self) -> bool:
        """Whether there is someone to answer any question."""
        return len(self._table) > 1

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a request; raises `RequestError` where it is refused."""
        handler = self._table.get(method)
        if handler is None:
            raise MethodNotFound(f"This client does not answer {method}.")
        try:
            return await handler(params)
        except AntiphonError as error:
            if isinstance(error, RequestError):
                raise
            raise InternalError(str(error)) from error
        except Exception as error:
            logger.exception("The handler of %s failed.", method)
            raise InternalError(f"The client failed to answer {method}.") from error

    def accept(
        self,
        frame: Frame,
        reply: Callable[[RequestId, Any], Awaitable[None]],
        refuse: Callable[[RequestId, RequestError], Awaitable[None]],
    ) -> None:
        """Start to answer a request that came on a stream."""
        request_id = frame.request_id
        assert request_id is not None
        task = asyncio.create_task(self._work(frame, request_id, reply, refuse))
        self._working[request_id] = task
        task.add_done_callback(lambda _: self._working.pop(request_id, None))

    def cancel(self, request_id: RequestId) -> None:
        """The server does not want this answer any more."""
        task = self._working.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Give up what is being worked on."""
        tasks = set(self._working.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _work(
        self,
        frame: Frame,
        request_id: RequestId,
        reply: Callable[[RequestId, Any], Awaitable[None]],
        refuse: Callable[[RequestId, RequestError], Awaitable[None]],
    ) -> None:
        with contextlib.suppress(AntiphonError):  # the connection is gone, and whoever waits on it is told
            try:
                if len(self._working) > self._at_once:
                    raise InternalError("This client has too many questions open.")
                params = frame.params if isinstance(frame.params, dict) else {}
                result = await self.answer(str(frame.method), params)
            except RequestError as error:
                await refuse(request_id, error)
            else:
                await reply(request_id, result)


async def _pong(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}
