"""The callbacks that answer the requests of a server.

Owns a table of handlers by method. In versions where a server sends requests on an open stream, each request
is answered in a task of its own; the number of such tasks is bounded.
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
from antiphon.instrumentation import find_instruments
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.base import Value
from antiphon.model.capabilities import capabilities_for
from antiphon.model.form import defaults
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Sample
from antiphon.model.request import RequestId, RequestMeta
from antiphon.model.ui import tool_ui
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.questions import ELICITATION, ROOTS, SAMPLING, accept, refuse, write_answer

__all__ = [
    "Callbacks",
    "ElicitCallback",
    "Elicitation",
    "RequestHandler",
    "Roots",
    "SampleCallback",
    "handlers_for",
]

logger = logging.getLogger("antiphon.client")

RequestHandler: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers a request of the server: takes its params and returns its result; a `RequestError` refuses it."""


class Elicitation(Value, frozen=True):
    """A question for the person at the client: a form to fill in, or a page to visit."""

    message: str
    requested_schema: dict[str, Any] = {}
    mode: Literal["form", "url"] = "form"
    url: str | None = None
    elicitation_id: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def ui(self) -> str | None:
        """The URI of the MCP App that asks in place of the form, or `None` if it has none. Experimental."""
        return tool_ui(self.meta)


Answer: TypeAlias = Mapping[str, Any] | Literal["decline", "cancel"]
ElicitCallback: TypeAlias = Callable[[Elicitation], Awaitable[Answer] | Answer]
"""Asks the person: returns the content of the form, "decline" or "cancel"."""


Message: TypeAlias = Mapping[str, Any] | str
SampleCallback: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Message] | Message]
"""Asks a model: takes the params of `sampling/createMessage`, returns a text or the whole result."""

Folders: TypeAlias = Sequence[str | Mapping[str, Any]]
Roots: TypeAlias = Folders | Callable[[], Awaitable[Folders] | Folders]
"""The folders that the client works in, as addresses or as MCP roots; or a function that returns them."""


async def _awaited(value: Any) -> Any:
    """Return the result of a function that may be async."""
    return await value if inspect.isawaitable(value) else value


def _elicitation_handler(elicit: ElicitCallback) -> RequestHandler:
    """Return the handler of elicitations. Fields that a person left out get the default of the schema."""

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            question = msgspec.convert(params, Elicitation)
        except msgspec.ValidationError as error:
            raise InvalidParams(f"Invalid params for {ELICITATION}: {error}.") from None
        given: Answer = await _awaited(elicit(question))
        if isinstance(given, str):
            return refuse(given)
        if question.mode == "url":
            return accept()
        return accept({**defaults(question.requested_schema), **given})

    return answer


def _sampling_handler(sample: SampleCallback) -> RequestHandler:
    """Return the handler of sampling. A plain text becomes a message of the assistant."""

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return write_answer(Sample(params), await _awaited(sample(params)))

    return answer


def _roots_handler(roots: Roots) -> RequestHandler:
    """Return the handler of lists of roots. A plain string is an address."""

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return write_answer(ListRoots(), await _awaited(roots()) if callable(roots) else roots)

    return answer


def handlers_for(
    elicit: ElicitCallback | None, sample: SampleCallback | None, roots: Roots | None
) -> tuple[dict[str, RequestHandler], dict[str, Any]]:
    """Return the handlers by method for these callbacks, and the capabilities that they give a client."""
    handlers: dict[str, RequestHandler] = {}
    capabilities: dict[str, Any] = {}
    if elicit is not None:
        handlers[ELICITATION] = _elicitation_handler(elicit)
        capabilities |= capabilities_for(Elicit, OpenUrl)
    if sample is not None:
        handlers[SAMPLING] = _sampling_handler(sample)
        capabilities |= capabilities_for(Sample)
        # A callback that takes the tools of a request says so.
        capabilities["sampling"] |= getattr(sample, "sampling_capabilities", {})
    if roots is not None:
        handlers[ROOTS] = _roots_handler(roots)
        capabilities |= capabilities_for(ListRoots)
    return handlers, capabilities


class Callbacks:
    """The handlers of one client, and the requests that they are answering. Pings are answered always."""

    def __init__(self, handlers: Mapping[str, RequestHandler], *, max_requests: int = 64) -> None:
        self._handlers: dict[str, RequestHandler] = {"ping": _pong, **handlers}
        self._max_requests = max_requests
        self._working: dict[RequestId, asyncio.Task[None]] = {}

    def knows(self, method: str) -> bool:
        """Return whether there is a handler for a method."""
        return method in self._handlers

    @property
    def know_anything(self) -> bool:
        """Whether there is a handler for any method but ping."""
        return len(self._handlers) > 1

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of a request; raises the `RequestError` that refuses it."""
        handler = self._handlers.get(method)
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
        reply: Callable[[Mapping[str, Any]], Awaitable[None]],
        refuse: Callable[[RequestId, RequestError], Awaitable[None]],
        facts: Callable[[str], MessageFacts] | None = None,
    ) -> None:
        """Start to answer a request that came on a stream, in a span if there are `facts` for it."""
        request_id = frame.request_id
        assert request_id is not None
        # A refusal is a message too, so in a flood the client does not answer at all.
        if request_id in self._working or len(self._working) >= 2 * self._max_requests:
            logger.debug("Ignored a request of the server: its id is in use, or too many are open.")
            return
        task = asyncio.create_task(self._work(frame, request_id, reply, refuse, facts))
        self._working[request_id] = task
        task.add_done_callback(lambda _: self._working.pop(request_id, None))

    def cancel(self, request_id: RequestId) -> None:
        """Stop answering a request that the server has cancelled."""
        task = self._working.get(request_id)
        if task is not None:
            task.cancel()

    async def finish(self) -> bool:
        """Wait until the requests are answered that are being answered now; returns whether there are any."""
        working = set(self._working.values())
        if working:
            await asyncio.wait(working)
        return bool(working)

    async def close(self) -> None:
        """Stop answering all requests."""
        tasks = set(self._working.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _work(
        self,
        frame: Frame,
        request_id: RequestId,
        reply: Callable[[Mapping[str, Any]], Awaitable[None]],
        refuse: Callable[[RequestId, RequestError], Awaitable[None]],
        facts: Callable[[str], MessageFacts] | None,
    ) -> None:
        with contextlib.suppress(
            AntiphonError
        ):  # the connection is lost, and its requests fail by themselves
            try:
                if len(self._working) > self._max_requests:
                    raise InternalError("This client has too many questions open.")
                params = frame.params if isinstance(frame.params, dict) else {}
                result = await self._answer_in_span(frame, params, facts)
            except RequestError as error:
                await refuse(request_id, error)
            else:
                await reply(result)

    async def _answer_in_span(
        self, frame: Frame, params: Mapping[str, Any], facts: Callable[[str], MessageFacts] | None
    ) -> Mapping[str, Any]:
        method = str(frame.method)
        instruments = None if facts is None else find_instruments("server")
        if facts is None or instruments is None:
            return await self.answer(method, params)
        # A server can make up any number of methods.
        shown = facts(method if self.knows(method) else "unknown")
        parent = RequestMeta(raw=frame.meta).trace_context
        with instruments.operation(shown, request_id=frame.request_id, parent=parent):
            return await self.answer(method, params)


async def _pong(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}
