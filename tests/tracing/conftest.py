"""OpenTelemetry in the process of the tests, with exporters that keep everything in memory."""

from __future__ import annotations

from collections.abc import Iterator

import opentelemetry.metrics._internal as internal_metrics
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.tracing.tooling import Spans


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """Collect spans. OpenTelemetry accepts one provider per process, so this replaces who returns it."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: provider)
        yield found
    provider.shutdown()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    """The spans that this test ends."""
    exporter.clear()
    return Spans(exporter)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """The metrics that this test records."""
    found = InMemoryMetricReader()
    provider = MeterProvider([found])
    for module in (metrics, internal_metrics):
        monkeypatch.setattr(module, "get_meter_provider", lambda: provider)
    yield found
    provider.shutdown()
