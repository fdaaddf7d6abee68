"""The trace that a task belongs to: stored with the task, and linked by the requests about the task.

The log keeps the whole context, which a worker continues, and the spans of the requests that answered. The
record keeps the span that made the task, for the links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.instrumentation import current_trace_context, link_to
from antiphon.model.trace_context import TRACEPARENT
from antiphon.runtime.execution.call import Call
from antiphon.store.contract import Record

__all__ = ["current_span", "link_to", "link_to_task", "span_of", "trace_of"]


def trace_of(call: Call[Any]) -> dict[str, str]:
    """Return the trace context for a task: of the request's span, or without one as the caller sent it."""
    return current_trace_context() or call.request_meta.trace_context


def span_of(trace: Mapping[str, str]) -> str | None:
    """Return the span of a trace context; `None` if it is not in W3C's form."""
    found = trace.get("traceparent", "")
    return found if TRACEPARENT.fullmatch(found) else None


def current_span() -> str | None:
    """Return the span of the request that is being served; `None` if it is not traced."""
    return span_of(current_trace_context())


def link_to_task(record: Record) -> None:
    """Link the span of a request to the request that made a task, if both were traced."""
    found = record.head.get("traceparent") if isinstance(record.head, dict) else None
    if isinstance(found, str):
        link_to(found)
