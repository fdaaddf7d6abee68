"""Telemetry of calls: log lines, counters and durations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Context, Failure, InvalidParams, Server
from antiphon.runtime.observability import telemetry
from tests.patterns.conftest import in_a_thread
from tests.patterns.tooling import DIALECTS, make, plainly, redeemed
from tests.promises.tooling import speaker
from tests.support.memory import in_memory
from tests.support.polling import forever, until
from tests.support.speakers import Modern


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.call for record in caplog.records if record.name == "antiphon.calls"]  # type: ignore[attr-defined]


# Lines


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_call_has_a_line(dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.calls")
    with in_a_thread(make(store="memory:")) as where:
        client = await plainly(dialect, where.port, headers={"x-who": "ada"})
        kept = (await client.call("create", topic="private")).result["_meta"]["artifact_id"]
        await client.call("partial")
        await client.call("refuse", error="params")
        await client.call("nobody")
        await until(lambda: len(lines(caplog)) == 4)
        created, partial, refused, unknown = lines(caplog)
        seconds = created.pop("seconds")
        assert 0 < seconds < 5
        assert created == {
            "tool": "create",
            "response": "answer",
            "outcome": "complete",
            "request": 1,
            "principal": "ada",
            "artifact": kept,
        }
        assert (partial["outcome"], refused["outcome"], refused["error"]) == (
            "failed",
            "error",
            "InvalidParams",
        )
        assert (unknown["tool"], unknown["outcome"]) == ("nobody", "error")
        assert "private" not in caplog.text, "arguments are nobody's business"
        assert "tool=create response=answer outcome=complete" in caplog.text


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_promise_has_a_line_when_it_is_made_and_one_when_it_is_kept(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "antiphon.calls")
    server = make(store="memory:")
    with in_a_thread(server) as where:
        client = await speaker(dialect, where.port)
        await redeemed(client, "text")
        await until(lambda: len(lines(caplog)) == 2)
    made, kept = lines(caplog)
    if made["outcome"] != "open":
        made, kept = kept, made
    assert (made["response"], made["outcome"]) == ("promise", "open")
    assert (kept["response"], kept["outcome"]) == ("promise", "complete")
    assert made["task"] == kept["task"]
    assert server.counters == {("text", "promise", "open"): 1, ("text", "promise", "complete"): 1}


async def test_arguments_are_logged_where_that_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.calls")
    async with in_memory(make(log_arguments=True)) as client:
        await client.call("create", topic="told")
    assert lines(caplog)[0]["arguments"] == {"topic": "told"}


# Counters


async def test_calls_are_counted_by_response_and_outcome() -> None:
    server = Server("counted")
    gate, begun = asyncio.Event(), asyncio.Event()

    @server.tool
    async def plain(fail: bool = False) -> str:
        if fail:
            raise Failure("no")
        return "yes"

    @server.tool
    async def refuse() -> str:
        raise InvalidParams("no")

    @server.tool
    async def wait(ctx: Context | None = None) -> str:
        begun.set()
        await gate.wait()
        return "late"

    @server.tool(timeout=0.2)
    async def slow() -> str:
        await forever()
        return "never"

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which?", str)

    @server.tool
    async def emit() -> AsyncIterator[str]:
        yield "a"

    async with in_memory(server) as client:
        for _ in range(3):
            await client.call("plain")
        await client.call("plain", fail=True)
        await client.call("plain", unknown=1)
        await client.error("tools/call", {"name": "refuse"})
        await client.call("slow")
        await client.call("ask")
        await client.call("emit")
        waiting = asyncio.create_task(client.call("wait"))
        await begun.wait()
        client.tell("notifications/cancelled", {"requestId": 10})
        await until(lambda: ("wait", "answer", "cancelled") in server.counters)
        waiting.cancel()
        assert server.counters == {
            ("plain", "answer", "complete"): 3,
            ("plain", "answer", "failed"): 2,
            ("refuse", "answer", "error"): 1,
            ("slow", "answer", "failed"): 1,
            ("ask", "input_required", "open"): 1,
            ("emit", "answer", "complete"): 1,
            ("wait", "answer", "cancelled"): 1,
        }


async def test_streams_are_counted_as_such() -> None:
    class Streaming(Modern):
        capabilities = {"extensions": {"dev.antiphon/streaming": {}}}

    server = make()
    with in_a_thread(server) as where:
        await Streaming(where.port).call("breaks_off")
        await Streaming(where.port).call("streamed")
    assert server.counters == {("breaks_off", "stream", "failed"): 1, ("streamed", "stream", "complete"): 1}


async def test_calls_are_timed_once_somebody_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0
    monkeypatch.setattr(telemetry, "perf_counter", lambda: passed)
    server = Server("timed")

    @server.tool
    async def nap(seconds: float) -> str:
        nonlocal passed
        passed += seconds
        return "slept"

    async with in_memory(server) as client:
        await client.call("nap", seconds=0.0)
        assert server.timings == {}
        await client.call("nap", seconds=0.0)
        await client.call("nap", seconds=50.0)
        timing = server.timings["nap"]
        assert timing.calls == 2
        assert timing.total == 50
        bounds = [bound for bound, _ in timing.buckets]
        assert bounds == sorted(bounds)
        assert timing.buckets[-1][1] == 2
        assert bounds[-1] >= 50
        assert server.counters == {("nap", "answer", "complete"): 3}
