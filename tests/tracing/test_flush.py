"""A collector that accepts everything and never answers does not hold up the end of a server."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from antiphon import instrumentation
from antiphon.instrumentation import flush


class HangingExporter(InMemorySpanExporter):
    """An exporter whose collector does not answer before `answered` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = Event()

    def export(self, spans: Any) -> Any:
        self.answered.wait(60)
        return super().export(spans)


class FailingReader(InMemoryMetricReader):
    """A reader of metrics that cannot export."""

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        raise OSError("The collector\nis away")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingExporter]:
    """An exporter that hangs, with one span to export."""
    found, spans, meters = HangingExporter(), TracerProvider(), MeterProvider([FailingReader()])
    spans.add_span_processor(BatchSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    spans.get_tracer("tests").start_span("work").end()
    yield found
    found.answered.set()
    spans.shutdown()
    meters.shutdown()


def test_the_flush_ends_and_the_exit_does_not_flush_again(
    exporter: HangingExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(instrumentation, "FLUSH_SECONDS", 0.05)
    forgotten: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(atexit, "unregister", forgotten.append)
        flush()
    assert not exporter.get_finished_spans(), "the flush has waited for the collector"
    assert forgotten == [trace.get_tracer_provider().shutdown, metrics.get_meter_provider().shutdown]
    messages = sorted(record.getMessage() for record in caplog.records if record.name == "antiphon")
    assert "MeterProvider cannot export" in messages[0]
    assert "\n" not in messages[0]
    assert messages[1].startswith("TracerProvider of OpenTelemetry did not export everything within 0.05 s")


def test_a_collector_that_answers_gets_everything(
    exporter: HangingExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter.answered.set()
    forgotten: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(atexit, "unregister", forgotten.append)
        flush()
    assert [span.name for span in exporter.get_finished_spans()] == ["work"]
    assert not forgotten
