"""Log records of a server, as OpenTelemetry's handler exports them: in the trace of their request."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from antiphon import Client, Context, Failure, Server
from tests.tracing.tooling import SERVER, Spans, span_id


@pytest.fixture
def records() -> Iterator[InMemoryLogRecordExporter]:
    """The log records of the library, as OpenTelemetry's handler exports them."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    with pytest.warns(
        DeprecationWarning, match="LoggingHandler"
    ):  # the handler moves to another package, and works the same there
        handler = LoggingHandler(logger_provider=provider)
    log = logging.getLogger("antiphon")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    yield exporter
    log.removeHandler(handler)
    log.setLevel(level)
    provider.shutdown()


async def test_log_records_belong_to_the_span_of_their_request(
    records: InMemoryLogRecordExporter, spans: Spans
) -> None:
    server = Server("failing", store="memory:")

    @server.tool
    async def fail() -> str:
        raise RuntimeError("broken")

    @server.tool(task="required")
    async def report(ctx: Context) -> str:
        await ctx.warning("half done")
        return "done"

    async with Client(server) as client:
        with pytest.raises(Failure):
            await client.call("fail")
        assert (await client.call("report")).text == "done"
    found = {
        str(each.log_record.body).split(",")[0]: each.log_record.span_id
        for each in records.get_finished_logs()
    }
    assert found["The tool 'fail' failed with an internal error"] == span_id(
        spans.one("tools/call fail", SERVER)
    )
    (of_the_task,) = (span for body, span in found.items() if "half done" in body)
    assert of_the_task == span_id(spans.one("execute_tool report")), "what `ctx.warning` says in a task"
