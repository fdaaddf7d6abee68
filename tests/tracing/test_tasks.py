"""The trace of a task: from the caller, through the server that accepts it, to the worker that runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry import trace

from antiphon import Client, Context, Server
from antiphon.store import open_store
from antiphon.store.memory import MemoryStore
from tests.patterns.conftest import in_a_thread
from tests.patterns.tooling import DIALECTS, make
from tests.promises.tooling import speaker
from tests.tracing.tooling import (
    CLIENT,
    INTERNAL,
    PARENT,
    SERVER,
    TRACE,
    Spans,
    attributes,
    linked,
    parent_id,
    span_id,
    trace_id,
)

TOOL = "execute_tool report"


async def fetch(page: int) -> int:
    with trace.get_tracer("tests").start_as_current_span(f"page {page}"):
        return page


async def fail() -> int:
    raise ValueError("s3cret")


def reporting(store: Path, **options: Any) -> Server:
    """A server whose tool has steps and a question."""
    server = Server("reporting", store=f"sqlite:///{store}")

    @server.tool(task="required", **options)
    async def report(ctx: Context) -> str:
        total = await ctx.step(fetch, 1)
        total += await ctx.step(fetch, 2, key="second-s3cret")
        try:
            await ctx.step(fail)
        except ValueError:
            total += 1
        unit = await ctx.elicit("Which unit?", str, key="unit")
        await ctx.info("almost done")
        return f"{total} {unit}"

    return server


async def test_a_task_is_one_trace_from_the_caller_through_the_worker(tmp_path: Path, spans: Spans) -> None:
    """One engine accepts the task, another one runs it. They share the store, and nothing else."""
    accepting, working = reporting(tmp_path / "tasks.db"), reporting(tmp_path / "tasks.db")
    accepting.configure(run_tasks=False)
    async with working.running(), Client(accepting, elicit=lambda asked: {"value": "€"}) as client:
        with trace.get_tracer("tests").start_as_current_span("agent") as agent:
            assert (await client.call("report")).text == "4 €"
        await spans.wait_for(TOOL, count=2)
    of_the_trace = {trace_id(span) for span in spans.all if span.name != "server/discover"}
    assert of_the_trace == {f"{agent.get_span_context().trace_id:032x}"}
    accepted = spans.one("tools/call report", SERVER)
    assert attributes(accepted)["antiphon.response"] == "promise"
    first, second = spans.named(TOOL, INTERNAL)
    assert parent_id(first) == parent_id(second) == span_id(accepted)
    assert dict(attributes(second)) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "report",
        "antiphon.task.id": attributes(accepted)["antiphon.task.id"],
        "antiphon.response": "promise",
        "antiphon.outcome": "complete",
    }

    # Steps ran once, in the first run. The second one replays them.
    steps = spans.named("step fetch")
    assert [parent_id(step) for step in steps] == [span_id(first)] * 2
    assert [attributes(step)["antiphon.step.name"] for step in steps] == ["fetch", "fetch"]
    assert not any("s3cret" in span.to_json() for span in spans.all), "a key may contain arguments"
    assert parent_id(spans.one("page 1")) == span_id(steps[0])
    # A step that failed is not recorded, so it runs again.
    for failed, run in zip(spans.named("step fail"), (first, second), strict=True):
        assert parent_id(failed) == span_id(run)
        assert attributes(failed)["error.type"] == "ValueError"
        assert "s3cret" not in failed.to_json()
    assert [event.name for event in first.events] == ["antiphon.question"]
    assert not second.events

    # The requests about the task link to the one that made it.
    about = [span for span in spans.all if span.name.startswith("tasks/") and span.kind is SERVER]
    assert about
    assert all(linked(span) == [span_id(accepted)] for span in about)

    # The run after the answer links to the request that answered.
    assert linked(first) == []
    (answering,) = linked(second)
    assert answering in [span_id(span) for span in about]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_belongs_to_the_trace_that_it_was_made_in(dialect: str, spans: Spans) -> None:
    with in_a_thread(make(store="memory:")) as where:
        client = await speaker(dialect, where.port)
        params: dict[str, Any] = {"name": "text", "arguments": {}, "_meta": {"traceparent": PARENT}}
        if dialect != "2026-07-28":
            params["task"] = {}
        await client.ask("tools/call", params)
        (run,) = await spans.wait_for("execute_tool text")
    accepted = spans.one("tools/call text")
    assert trace_id(accepted) == trace_id(run) == TRACE
    assert parent_id(run) == span_id(accepted)
    assert attributes(run)["antiphon.response"] == "promise"


async def test_a_call_that_becomes_a_task_while_it_runs_has_one_span_for_its_function(spans: Spans) -> None:
    server, gate = Server("late", store="memory:"), asyncio.Event()

    @server.tool(task="optional", answer_within=0.0)
    async def report(ctx: Context) -> str:
        await gate.wait()
        with trace.get_tracer("tests").start_as_current_span("after the promise"):
            return "done"

    async with Client(server) as client:
        handle = await client.submit("report")
        gate.set()
        assert (await handle.result()).text == "done"
    accepted, run = spans.one("tools/call report", SERVER), spans.one(TOOL)
    assert parent_id(run) == span_id(accepted)
    assert parent_id(spans.one("after the promise")) == span_id(run)
    assert run.end_time > accepted.end_time  # type: ignore[operator]
    assert attributes(run)["antiphon.task.id"] == attributes(accepted)["antiphon.task.id"] == handle.id


async def test_the_trace_is_stored_with_the_task_and_a_task_without_one_has_a_trace_of_its_own(
    tmp_path: Path, spans: Spans
) -> None:
    """An earlier version writes a task without the span in its record. Its workers ignore the span."""
    accepting = reporting(tmp_path / "tasks.db")
    accepting.configure(run_tasks=False)
    async with Client(accepting) as client:
        with trace.get_tracer("tests").start_as_current_span("agent"):
            stored = await client.submit("report")
    accepted = spans.one("tools/call report", SERVER)
    store = open_store(f"sqlite:///{tmp_path / 'tasks.db'}")
    await store.open()
    try:
        record = await store.get(stored.id)
        assert record is not None
        assert record.head["traceparent"].startswith(f"00-{trace_id(accepted)}-{span_id(accepted):016x}-")
        (created,) = await store.read(stored.id)
        assert created.data["trace"]["traceparent"] == record.head["traceparent"]
        del record.head["traceparent"], created.data["trace"]
        del created.data["task"]["traceparent"]
        earlier = msgspec.structs.replace(record, id="report_earlier")
        created.data["task"]["id"] = earlier.head["id"] = earlier.id
        await store.create(earlier, [("created", created.data)])
    finally:
        await store.close()
    async with reporting(tmp_path / "tasks.db").running():
        first, second = await spans.wait_for(TOOL, count=2)
    found = {attributes(span)["antiphon.task.id"]: parent_id(span) for span in (first, second)}
    assert found == {stored.id: span_id(accepted), earlier.id: None}


async def test_a_trace_context_that_is_none_is_not_stored_in_the_record(spans: Spans) -> None:
    store = MemoryStore()
    server = Server("hostile", store=store)

    @server.tool(task="required")
    async def report() -> str:
        return "done"

    async with Client(server) as client:
        handle = await client.submit("report", meta={"traceparent": "00-" + "f" * 10_000})
        assert (await handle.result()).text == "done"
        record = await store.get(str(handle.id))
    assert record is not None
    assert record.head["traceparent"].startswith(f"00-{trace_id(spans.one('tools/call report', SERVER))}-")
    assert len({trace_id(span) for span in spans.named("tools/call report")}) == 1
    assert spans.named("tools/call report", CLIENT)
