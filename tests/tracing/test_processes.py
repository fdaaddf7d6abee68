"""`--otel`: real processes that export their spans, one trace through all of them."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry import trace

from antiphon import Client
from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.support.fork_server import start_process
from tests.support.leases import end_leases
from tests.support.polling import until
from tests.tracing.tooling import SERVER, Spans, span_id

SOURCE = """
import asyncio, logging, os, pathlib
from antiphon import Context, Limits, Server
from tests.support.leases import LONG_LEASE_SECONDS

server = Server("traced", limits=Limits(lease_seconds=LONG_LEASE_SECONDS))

async def begin() -> str:
    return "begun"

@server.tool(task="required", poll_interval=0.05)
async def report(ctx: Context) -> str:
    await ctx.step(begin)
    pathlib.Path("begun").touch()
    if not os.environ.get("QUICK"):
        await asyncio.Event().wait()
    return "done"

@server.tool
async def greet(name: str) -> str:
    logging.getLogger("mine").warning("greeting somebody")
    return f"Hello, {name}."
"""
CONSOLE = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_BSP_SCHEDULE_DELAY": "20",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a server."""
    found = tmp_path / "traced.py"
    found.write_text(SOURCE)
    return found


def printed(log: Path | str) -> dict[str, dict[str, Any]]:
    """The spans that a process has printed, by name."""
    text, decoder = log.read_text() if isinstance(log, Path) else log, json.JSONDecoder()
    found: dict[str, dict[str, Any]] = {}
    while (start := text.find('{\n    "name"')) >= 0:
        text = text[start:]
        try:
            span, end = decoder.raw_decode(text)
        except ValueError:  # it is being written
            break
        found[span["name"]] = span
        text = text[end:]
    return found


@contextmanager
def working(file: Path, log: Path, env: Mapping[str, str]) -> Iterator[Any]:
    with log.open("w") as sink:
        words = [*COMMAND, "worker", str(file), "--otel"]
        process = start_process(words, cwd=file.parent, env=plain_environment(env), stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)


async def test_one_trace_survives_the_kill_of_a_worker(file: Path, tmp_path: Path, spans: Spans) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    env = {**CONSOLE, "ANTIPHON_STORE": store, "ANTIPHON_OTEL": "1"}
    killed, second = tmp_path / "killed.log", tmp_path / "second.log"
    with running(file, "--no-worker", directory=tmp_path, env=env) as server:
        async with Client(server.url) as client:
            with trace.get_tracer("tests").start_as_current_span("agent") as agent:
                handle = await client.submit("report")
            with working(file, killed, env) as process:
                # The span may be printed before the step is recorded.
                await until(lambda: "step begin" in printed(killed) and (file.parent / "begun").exists())
                process.send_signal(signal.SIGKILL)
            assert await end_leases(store) == 1
            with working(file, second, {**env, "QUICK": "1"}):
                assert (await asyncio.wait_for(handle.result(), PATIENCE)).text == "done"
        server.terminate()
        accepted = printed(server.log)["tools/call report"]
    run = printed(second)["execute_tool report"]
    lost = printed(killed)["step begin"]
    (expected,) = {f"0x{agent.get_span_context().trace_id:032x}"}
    assert {each["context"]["trace_id"] for each in (accepted, run, lost)} == {expected}
    assert accepted["kind"] == "SpanKind.SERVER"
    assert run["parent_id"] == accepted["context"]["span_id"]
    assert "step begin" not in printed(second), "the second run replays the step"
    redeeming = printed(server.log)["subscriptions/listen"]
    assert redeeming["links"][0]["context"]["span_id"] == accepted["context"]["span_id"]
    assert "error.type" not in redeeming["attributes"], "a listener goes when it has heard enough"
    assert not spans.named("tools/call report", SERVER), "those are in the other process"
    assert span_id(spans.one("tools/call report")) == int(accepted["parent_id"], 16)


def test_an_exporter_that_is_not_installed_is_named_with_the_remedy(file: Path) -> None:
    env = {"OTEL_TRACES_EXPORTER": "no-such-exporter"}
    ended = antiphon("run", file, "--otel", "--port", "0", env=env)
    assert ended.returncode == 2
    assert "no-such-exporter" in ended.stderr
    assert "OTEL_*" in ended.stderr
    assert "antiphon[tracing]" in ended.stderr
    assert "Traceback" not in ended.stderr


class Receiver(ThreadingHTTPServer):
    """A collector on a real socket. It keeps the bodies of requests by path."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        super().__init__(("127.0.0.1", 0), Exports)


class Exports(BaseHTTPRequestHandler):
    """One connection of an exporter."""

    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


async def test_a_collector_gets_traces_metrics_and_logs(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    receiver = Receiver()
    thread = Thread(target=receiver.serve_forever)
    thread.start()
    try:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}"}
        with running(file, "--otel", directory=tmp_path, env={**os.environ, **env}) as server:
            async with Client(server.url) as client:
                assert (await client.call("greet", name="s3cret")).text == "Hello, s3cret."
            assert server.terminate() == 0
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()
    assert not any(b"s3cret" in body for bodies in receiver.bodies.values() for body in bodies)
    (traces,) = map(ExportTraceServiceRequest.FromString, receiver.bodies["/v1/traces"])
    (resource,) = traces.resource_spans
    assert any(each.value.string_value == "traced" for each in resource.resource.attributes)
    called = {span.name: span for span in resource.scope_spans[0].spans}["tools/call greet"]
    metrics = map(ExportMetricsServiceRequest.FromString, receiver.bodies["/v1/metrics"])
    names = {
        metric.name
        for each in metrics
        for found in each.resource_metrics
        for scope in found.scope_metrics
        for metric in scope.metrics
    }
    assert "mcp.server.operation.duration" in names
    logs = map(ExportLogsServiceRequest.FromString, receiver.bodies["/v1/logs"])
    records = [
        record
        for each in logs
        for found in each.resource_logs
        for scope in found.scope_logs
        for record in scope.log_records
    ]
    (greeting,) = (record for record in records if record.body.string_value == "greeting somebody")
    assert greeting.span_id == called.span_id
