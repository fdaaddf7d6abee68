"""Spans and metrics of MCP requests, by OpenTelemetry's conventions for MCP, for clients and servers.

This module imports nothing of OpenTelemetry: a program that does not use OpenTelemetry pays for a look into
`sys.modules`. `instruments` has the spans and the metrics. The package must not know transports or tasks.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.instrumentation.instruments import Instruments

__all__ = [
    "FLUSH_SECONDS",
    "Side",
    "add_event",
    "current_trace_context",
    "find_instruments",
    "flush",
    "is_configured",
    "link_to",
]

logger = logging.getLogger("antiphon")

Side: TypeAlias = Literal["client", "server"]
"""Whether a request is sent or received. A server sends requests too, when it asks its client."""

FLUSH_SECONDS = 5.0
"""How long the exporters together may take when a server stops."""

_PLACEHOLDERS = ("ProxyTracerProvider", "NoOpTracerProvider", "_ProxyMeterProvider", "NoOpMeterProvider")
"""The classes of the providers that OpenTelemetry has until a program sets one."""

_cached: dict[Side, tuple[Any, Any, Instruments]] = {}
"""The instruments of each side, with the two providers that they belong to."""


def is_configured() -> bool:
    """Return whether the program has set a provider of spans or of metrics by now."""
    found = [type(provider).__name__ for provider in _providers() if provider is not None]
    return any(name not in _PLACEHOLDERS for name in found)


def find_instruments(side: Side) -> Instruments | None:
    """Return the instruments of a side, or `None` if the program has set no provider by now."""
    if not is_configured():
        return None
    tracers, meters = _providers()
    cached = _cached.get(side)
    if cached is None or cached[0] is not tracers or cached[1] is not meters:
        from antiphon.instrumentation.instruments import Instruments

        cached = _cached[side] = (tracers, meters, Instruments(side))
    return cached[2]


def flush() -> None:
    """Block until the spans, metrics and logs so far are exported, for `FLUSH_SECONDS` in all at most.

    The rest is lost then, with a warning. It does not hold up the end of the process either.
    """
    logs = sys.modules.get("opentelemetry._logs")
    providers: tuple[Any, ...] = (*_providers(), None if logs is None else logs.get_logger_provider())
    ends = time.monotonic() + FLUSH_SECONDS
    # The timeout of the providers does not hold: an export ends when the exporter's own timeout does.
    flushing = [
        (provider, threading.Thread(target=_force_flush, args=(provider,), daemon=True))
        for provider in providers
        if hasattr(provider, "force_flush")
    ]
    for _, thread in flushing:
        thread.start()
    for _, thread in flushing:
        thread.join(max(ends - time.monotonic(), 0))
    late = [type(provider).__name__ for provider, thread in flushing if thread.is_alive()]
    if late:
        for provider, _ in flushing:  # at exit, each would export once more, and wait again
            atexit.unregister(provider.shutdown)
        logger.warning(
            "%s of OpenTelemetry did not export everything within %g s, and the rest is lost. Check that the "
            "collector (OTEL_EXPORTER_OTLP_ENDPOINT) answers.",
            " and ".join(late),
            FLUSH_SECONDS,
        )


def _force_flush(provider: Any) -> None:
    try:
        provider.force_flush(int(FLUSH_SECONDS * 1000))
    except Exception as error:  # providers of metrics raise, others log
        logger.warning("OpenTelemetry's %s cannot export: %s", type(provider).__name__, printable(str(error)))


def current_trace_context() -> dict[str, str]:
    """Return the trace context of the current span under the names of the W3C headers; empty without one."""
    trace = sys.modules.get("opentelemetry.trace")  # a program that has not imported it has no trace
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return {}
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier


def add_event(name: str, attributes: Mapping[str, Any]) -> None:
    """Add an event to the current span, if one is recorded."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and (span := trace.get_current_span()).is_recording():
        span.add_event(name, attributes)


def link_to(traceparent: str | None) -> None:
    """Link the current span to another one, once; nothing happens without both."""
    trace = sys.modules.get("opentelemetry.trace")
    if traceparent is None or trace is None or not trace.get_current_span().is_recording():
        return
    from antiphon.instrumentation.instruments import link_current_span

    link_current_span(traceparent)


def _providers() -> tuple[Any, Any]:
    """Return the providers of spans and of metrics; `None` for one whose module was never imported."""
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    return (
        None if trace is None else trace.get_tracer_provider(),
        None if metrics is None else metrics.get_meter_provider(),
    )
