"""A server of a program that has not configured OpenTelemetry: nothing is wrapped, nothing is sent."""

from __future__ import annotations

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import TracerProvider

from antiphon import Client, Server
from antiphon.instrumentation import current_trace_context, find_instruments, is_configured


def small() -> Server:
    server = Server("small")

    @server.tool
    async def see(ctx: object = None) -> str:
        return "seen"

    return server


async def test_calls_go_straight_to_the_dispatcher() -> None:
    """The check that a plain call costs the same: the handler is the one of a server without tracing."""
    server = small()
    handle = server.engine.handle
    async with server.running():
        assert server.engine.handle is handle
        assert server.engine.telemetry.tracing is None
        assert not server.engine.telemetry.observes
    assert not is_configured()
    assert find_instruments("client") is find_instruments("server") is None
    assert current_trace_context() == {}


async def test_a_provider_counts_while_the_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    server = small()
    handle, before = server.engine.handle, opentelemetry.trace.get_tracer_provider()
    provider = TracerProvider()
    monkeypatch.setattr(opentelemetry.trace, "get_tracer_provider", lambda: provider)
    async with server.running():
        assert server.engine.handle is not handle
        async with Client(server) as client:
            assert (await client.call("see")).text == "seen"
    assert server.engine.handle is handle
    monkeypatch.undo()
    assert opentelemetry.trace.get_tracer_provider() is before
    async with server.running():
        assert server.engine.handle is handle
