"""Spans and metrics, as the tests read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.polling import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"

CLIENT, SERVER, INTERNAL = trace.SpanKind.CLIENT, trace.SpanKind.SERVER, trace.SpanKind.INTERNAL


class Spans:
    """The spans that have ended since the test began."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        """All of them, in the order in which they ended."""
        found: tuple[ReadableSpan, ...] = self._exporter.get_finished_spans()
        return found

    def named(self, name: str, kind: Any = None) -> list[ReadableSpan]:
        """Those with a name, and of a kind if one is given."""
        return [span for span in self.all if span.name == name and kind in (None, span.kind)]

    def one(self, name: str, kind: Any = None) -> ReadableSpan:
        """The only one with a name."""
        (found,) = self.named(name, kind)
        return found

    async def wait_for(self, name: str, kind: Any = None, count: int = 1) -> list[ReadableSpan]:
        """Wait until so many spans with a name have ended, and return them."""
        await until(lambda: len(self.named(name, kind)) >= count)
        return self.named(name, kind)


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """The attributes of a span."""
    return span.attributes or {}


def trace_id(span: ReadableSpan) -> str:
    """The trace of a span."""
    return f"{span.context.trace_id:032x}"  # type: ignore[union-attr]


def span_id(span: ReadableSpan) -> int:
    """The id of a span."""
    found: int = span.context.span_id  # type: ignore[union-attr]
    return found


def parent_id(span: ReadableSpan) -> int | None:
    """The id of a span's parent."""
    return None if span.parent is None else span.parent.span_id


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that a span links to."""
    return [link.context.span_id for link in span.links]


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    """The points of a metric: one for each set of attributes."""
    data = reader.get_metrics_data()
    return [
        point
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]
