"""The spans of a server: one for each request, for each run of a task, and for each step.

Owns which span is the parent of which. A run of a task is a child of the request that made the task, in
whichever process it runs. The module is imported only if the program has configured OpenTelemetry; the names
are in `instrumentation/instruments.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagate import extract

from antiphon.errors import Busy, InternalError, RequestError, StoreUnavailable
from antiphon.instrumentation.facts import MessageFacts
from antiphon.instrumentation.instruments import (
    Instruments,
    Operation,
    error_type,
    link_current_span,
    mark_failed,
)
from antiphon.model.request import LISTENING_REQUESTS, CallTool
from antiphon.model.segment import StreamEnd
from antiphon.model.task import Promise
from antiphon.model.trace_context import TRACE_KEYS, valid_trace_context
from antiphon.runtime.observability.telemetry import CallOutcome, Response, classify

__all__ = ["ServerTracing"]

_TRACE_HEADERS = {key.encode(): key for key in TRACE_KEYS}

Handle = Callable[[Any], Awaitable[Any]]


class ServerTracing:
    """Creates the spans of one server. `offers` returns whether the server has the tool of a request."""

    def __init__(self, instruments: Instruments, offers: Callable[[Any], bool]) -> None:
        self._instruments = instruments
        self._offers = offers

    def wrap(self, handle: Handle) -> Handle:
        """Return a handler of calls that runs each request in a span, with its duration in a histogram."""

        async def serve(call: Any) -> Any:
            facts: MessageFacts | None = call.caller.facts(call.request)
            if facts is None:
                return await handle(call)
            with self._instruments.operation(
                facts,
                call.request,
                call.id,
                parent=call.request_meta.trace_context or _trace_headers(call.caller.headers),
                names_target=self._offers(call.request),
            ) as operation:
                try:
                    outcome = await handle(call)
                except BaseException as error:
                    _note(operation, call, error)
                    raise
                _note(operation, call, outcome)
                return outcome

        return serve

    @contextmanager
    def running(self, call: Any) -> Iterator[Any]:
        """Run a tool that is a task, or may become one, in a span of its own: the request may end before.

        Its name and its attributes follow the conventions for the execution of tools.
        """
        name, trace_context = call.request.name, call.request_meta.trace_context
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        # A worker may run the task beside requests that have nothing to do with it.
        parent = None if call.task_id is None else extract(trace_context, Context())
        with self._instruments.tracer.start_as_current_span(
            f"execute_tool {name}",
            context=parent,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            for answer in call.caller.answered_in:
                link_current_span(answer)
            yield span

    def step(self, function: str, work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Return the work of a step in a span. A step that is replayed does no work, and has no span.

        The step is named after its function: its key may contain arguments.
        """
        attributes = {"antiphon.step.name": function}

        async def traced() -> Any:
            with self._instruments.tracer.start_as_current_span(
                f"step {function}",
                attributes=attributes,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    return await work()
                except BaseException as error:
                    mark_failed(span, error_type(error))
                    raise

        return traced

    def record_session(self, seconds: float, facts: MessageFacts) -> None:
        """Record how long a session lasted."""
        self._instruments.record_session(seconds, facts)

    @staticmethod
    def describe(span: Any, call: Any, response: Response, ended: CallOutcome, outcome: Any) -> None:
        """Describe on its span how a run of a tool ended."""
        _describe(span, response, ended, call.task_id)
        if ended in ("failed", "error"):
            code = outcome.code if isinstance(outcome, RequestError) else None
            mark_failed(span, "tool_error" if code is None else str(code), code)


def _note(operation: Operation, call: Any, outcome: Any) -> None:
    """Note how a request ended: an outcome, or the exception that its handler raised."""
    operation.is_noted = True
    if isinstance(outcome, StreamEnd):
        outcome = outcome.result
    ended: CallOutcome = "error" if isinstance(outcome, Exception) else "complete"
    if isinstance(call.request, CallTool) or isinstance(outcome, BaseException):
        response, ended = classify(call, outcome)
        if isinstance(call.request, CallTool):
            task_id = outcome.task.id if isinstance(outcome, Promise) else None
            _describe(operation.span, response, ended, task_id)
    if ended == "error":
        code = _code_of(call, outcome)
        operation.fail(str(code), code)
    elif ended == "failed":  # also a request that took too long: only a tool's result can say so
        operation.fail("tool_error" if isinstance(call.request, CallTool) else "timeout")
    elif ended == "cancelled" and type(call.request) not in LISTENING_REQUESTS:  # they have no other end
        operation.fail("cancelled")


def _describe(span: Any, response: Response, ended: CallOutcome, task_id: str | None) -> None:
    span.set_attribute("antiphon.response", response)
    span.set_attribute("antiphon.outcome", ended)
    if task_id is not None:
        span.set_attribute("antiphon.task.id", task_id)


def _code_of(call: Any, error: BaseException) -> int:
    """Return the JSON-RPC code with which an exception is answered."""
    if isinstance(error, RequestError):
        code: int = call.caller.code_of(error)
        return code
    return Busy.code if isinstance(error, StoreUnavailable) else InternalError.code


def _trace_headers(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the trace context of an HTTP request, for clients that put it there and not into `_meta`."""
    found = {key: headers[name].decode("latin-1") for name, key in _TRACE_HEADERS.items() if name in headers}
    return valid_trace_context(found) if found else found
