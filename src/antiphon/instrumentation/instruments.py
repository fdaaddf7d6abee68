"""The spans and the histograms of MCP requests, by OpenTelemetry's semantic conventions for MCP.

Owns the names of spans, attributes and metrics. Only programs that have configured OpenTelemetry import this
module. Attributes never have arguments, results, messages or tokens.
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.propagate import extract
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from antiphon.errors import RequestError, TimedOut
from antiphon.instrumentation import Side
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.request import CallTool, GetPrompt, ReadResource, RequestId, Subscribe, Unsubscribe
from antiphon.printable import printable, redacted_url
from antiphon.version import VERSION

__all__ = ["BUCKETS", "Instruments", "Operation", "error_type", "link_current_span", "mark_failed"]

BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The bounds of the histograms in seconds, as the conventions recommend them."""

_SCOPE = "antiphon"
_RECEIVED = {
    "client": "Duration of the MCP request, as its sender observed it.",
    "server": "Duration of the MCP request, as its receiver observed it.",
}
_MAX_ID_CHARACTERS = 128
"""How much of the id of a request a span shows. The other side chooses ids."""
_ONLY_IN_SPANS = frozenset(("jsonrpc.request.id", "mcp.session.id", "mcp.resource.uri"))
"""Attributes with too many values for a metric."""


class Instruments:
    """Creates the spans of one side, and records durations."""

    def __init__(self, side: Side) -> None:
        self.tracer = trace.get_tracer(_SCOPE, VERSION)
        self._kind = SpanKind.CLIENT if side == "client" else SpanKind.SERVER
        meter = metrics.get_meter(_SCOPE, VERSION)
        self._operations = meter.create_histogram(
            f"mcp.{side}.operation.duration",
            "s",
            _RECEIVED[side],
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._sessions = meter.create_histogram(
            f"mcp.{side}.session.duration",
            "s",
            f"Duration of the MCP session, as the {side} observed it.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    def operation(
        self,
        facts: MessageFacts,
        request: Any = None,
        request_id: RequestId | None = None,
        *,
        parent: Mapping[str, str] = {},
        names_target: bool = True,
    ) -> Operation:
        """Return the operation of one request, for a `with` block around the request.

        `parent` is a trace context that came with the request. The current span is the parent without one,
        and linked with one. Without `names_target`, the tool or prompt is not named: a caller made it up.
        """
        attributes = _connection_attributes(facts)
        attributes["mcp.method.name"] = facts.method
        if request_id is not None:
            attributes["jsonrpc.request.id"] = printable(str(request_id), _MAX_ID_CHARACTERS)
        if facts.session is not None:
            attributes["mcp.session.id"] = facts.session
        name = facts.method
        if isinstance(request, CallTool | GetPrompt):
            is_tool = isinstance(request, CallTool)
            if is_tool:
                attributes["gen_ai.operation.name"] = "execute_tool"
            if names_target:
                attributes["gen_ai.tool.name" if is_tool else "gen_ai.prompt.name"] = request.name
                name = f"{facts.method} {request.name}"
        elif isinstance(request, ReadResource | Subscribe | Unsubscribe):
            attributes["mcp.resource.uri"] = redacted_url(request.uri)
        context, links = None, []
        if parent:
            ambient = trace.get_current_span().get_span_context()
            context = extract(parent)
            known = trace.get_current_span(context).get_span_context()
            if ambient.is_valid and ambient.span_id != known.span_id:
                links.append(Link(ambient))
        span = self.tracer.start_span(
            name,
            context,
            self._kind,
            attributes,
            links,
            record_exception=False,
            set_status_on_exception=False,
        )
        return Operation(span, context, self._operations, attributes)

    def record_session(self, seconds: float, facts: MessageFacts) -> None:
        """Record how long a session lasted."""
        self._sessions.record(seconds, _connection_attributes(facts))


class Operation:
    """One request as a current span, and as a duration in a histogram."""

    __slots__ = ("_attributes", "_histogram", "_parent", "_started", "_token", "is_noted", "span")

    def __init__(self, span: Any, parent: Any, histogram: Any, attributes: dict[str, Any]) -> None:
        self.span = span
        self._parent = parent
        self._histogram = histogram
        self._attributes = attributes
        self.is_noted = False
        """Whether it is known how the request ended. If not, an exception at its end is its error."""

    def fail(self, kind: str, code: int | None = None) -> None:
        """Note that the request failed: the type of the error, and its JSON-RPC code if it has one."""
        self.is_noted = True
        self._attributes["error.type"] = kind
        if code is not None:
            self._attributes["rpc.response.status_code"] = str(code)
        mark_failed(self.span, kind, code)

    def __enter__(self) -> Operation:
        self._started = perf_counter()
        # The parent's baggage is part of its context, so the span goes into that context.
        self._token = contexts.attach(trace.set_span_in_context(self.span, self._parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not self.is_noted:
            self.fail(error_type(error), error.code if isinstance(error, RequestError) else None)
        labels = {key: value for key, value in self._attributes.items() if key not in _ONLY_IN_SPANS}
        self._histogram.record(perf_counter() - self._started, labels)
        contexts.detach(self._token)
        self.span.end()


def error_type(error: BaseException) -> str:
    """Return the `error.type` of an exception: a JSON-RPC code, `timeout`, `cancelled`, or a class."""
    if isinstance(error, RequestError):
        return str(error.code)
    if isinstance(error, TimedOut | TimeoutError):
        return "timeout"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__qualname__


def mark_failed(span: Any, kind: str, code: int | None = None) -> None:
    """Set the status of a span to an error. Its message is left out: it may quote arguments."""
    span.set_attribute("error.type", kind)
    if code is not None:
        span.set_attribute("rpc.response.status_code", str(code))
    span.set_status(Status(StatusCode.ERROR))


def link_current_span(traceparent: str) -> None:
    """Link the current span to the span of a W3C trace context, unless it is linked already."""
    found = trace.get_current_span(extract({"traceparent": traceparent}, contexts.Context()))
    target, span = found.get_span_context(), trace.get_current_span()
    linked = (link.context.span_id for link in getattr(span, "links", ()))
    if target.is_valid and target.span_id not in linked:
        span.add_link(target)


def _connection_attributes(facts: MessageFacts) -> dict[str, Any]:
    found = {
        "mcp.protocol.version": facts.protocol,
        "network.transport": facts.transport,
        "network.protocol.name": "http" if facts.is_http else None,
        "server.address": facts.address,
        "server.port": facts.port,
    }
    return {key: value for key, value in found.items() if value is not None}
