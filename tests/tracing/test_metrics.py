"""The metrics of requests and sessions, by the semantic conventions for MCP."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from antiphon import Client
from antiphon.errors import InvalidParams
from tests.support.polling import until
from tests.support.serving import serving
from tests.tracing.test_requests import shop
from tests.tracing.tooling import points

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


def by_method(reader: InMemoryMetricReader, name: str) -> dict[str, Any]:
    return {point.attributes["mcp.method.name"]: point for point in points(reader, name)}


async def test_durations_of_requests_are_recorded_on_both_sides(reader: InMemoryMetricReader) -> None:
    async with serving(shop()) as where, Client(where.url) as client:
        for item in ("cup", "pot"):
            await client.call("buy", item=item)
        with pytest.raises(InvalidParams):
            await client.prompt("made up")
        shared = {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": "2026-07-28",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "buy",
            "network.transport": "tcp",
            "network.protocol.name": "http",
        }
        address = {"server.address": "127.0.0.1", "server.port": where.port}
        for side, own in (("client", address), ("server", {})):
            found = by_method(reader, f"mcp.{side}.operation.duration")
            calls = found["tools/call"]
            assert dict(calls.attributes) == {**shared, **own}
            assert (calls.count, tuple(calls.explicit_bounds)) == (2, BOUNDS)
            assert 0 < calls.sum < 60
            failed = found["prompts/get"].attributes
            assert (failed["error.type"], failed["rpc.response.status_code"]) == ("-32602", "-32602")
        assert (
            "gen_ai.prompt.name"
            not in by_method(reader, "mcp.server.operation.duration")["prompts/get"].attributes
        )


async def test_durations_of_sessions_are_recorded_on_both_sides(reader: InMemoryMetricReader) -> None:
    async with serving(shop()) as where:
        async with Client(where.url, protocol="2025-11-25"):
            pass
        await until(lambda: points(reader, "mcp.server.session.duration"))
        (received,) = points(reader, "mcp.server.session.duration")
        (sent,) = points(reader, "mcp.client.session.duration")
    network = {
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert dict(received.attributes) == network
    assert dict(sent.attributes) == {**network, "server.address": "127.0.0.1", "server.port": where.port}
    assert received.count == sent.count == 1
    assert tuple(received.explicit_bounds) == tuple(sent.explicit_bounds) == BOUNDS


async def test_a_connection_in_memory_is_a_session_too(reader: InMemoryMetricReader) -> None:
    async with Client(shop()):
        pass
    (received,) = points(reader, "mcp.server.session.duration")
    assert "network.transport" not in received.attributes
