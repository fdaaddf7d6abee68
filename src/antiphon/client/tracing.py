"""The spans and durations of a client's requests, and how the trace context gets into a request.

Spans need a program that has configured OpenTelemetry. The module must not know what a request is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from antiphon.instrumentation import current_trace_context
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.outcome import Result
from antiphon.model.request import Request, RequestId, RequestMeta

if TYPE_CHECKING:
    from antiphon.client.connection import Connection
    from antiphon.instrumentation.instruments import Instruments

__all__ = ["Ask", "ConnectionTracing", "with_trace_context"]

Ask: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""Sends a request: takes its id, the request, its metadata and options, and returns its result."""


class ConnectionTracing:
    """Traces the requests of one connection, and records how long its session lasts."""

    def __init__(self, connection: Connection, instruments: Instruments) -> None:
        self._connection = connection
        self._instruments = instruments
        self._opened = time.monotonic()

    async def traced(
        self, ask: Ask, request_id: RequestId, request: Request, request_meta: RequestMeta, *options: Any
    ) -> Any:
        """Send a request in a span of its own. `ask` sends it, with the context of that span."""
        dialect = self._connection.dialect
        facts = self.facts(dialect.methods.get(type(request), type(request).__name__))
        parent = {} if current_trace_context() else request_meta.trace_context
        with self._instruments.operation(facts, request, request_id, parent=parent) as operation:
            result = await ask(request_id, request, request_meta, *options)
            if isinstance(result, Result) and result.is_error:
                operation.fail("tool_error")
            return result

    def end(self) -> None:
        """Record how long the session lasted."""
        self._instruments.record_session(time.monotonic() - self._opened, self.facts(""))

    def facts(self, method: str) -> MessageFacts:
        """Return the facts about a message of a method on this connection."""
        return self._connection.channel.facts(method)._replace(protocol=self._connection.dialect.version)


def with_trace_context(request_meta: RequestMeta) -> RequestMeta:
    """Return the metadata with the program's current trace context, if there is one."""
    carrier = current_trace_context()
    if not carrier:
        return request_meta
    return msgspec.structs.replace(request_meta, raw={**request_meta.raw, **carrier})
