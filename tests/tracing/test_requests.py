"""The spans of requests, at the server and at the client, by the semantic conventions for MCP."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from opentelemetry import baggage, context, trace

from antiphon import Client, Context, Failure, InvalidParams, Server
from antiphon.errors import RequestError
from antiphon.model.request import RequestMeta
from tests.patterns.conftest import in_a_thread
from tests.patterns.tooling import DIALECTS, make, plainly
from tests.support.http import request
from tests.support.memory import in_memory
from tests.support.process import ROOT
from tests.support.serving import serving
from tests.tracing.tooling import (
    CLIENT,
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


def shop(name: str = "shop", **options: Any) -> Server:
    server = Server(name, **options)

    @server.tool
    async def buy(item: str) -> str:
        """Buy an item."""
        if item == "refused":
            raise InvalidParams("no s3cret here")
        if item == "broken":
            raise RuntimeError("s3cret")
        return f"A {item}."

    @server.tool
    async def tag() -> str:
        return str(baggage.get_baggage("tenant"))

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which colour?", str, key="colour")

    @server.prompt
    async def greet(who: str) -> str:
        return f"Greet {who}."

    @server.resource("shop://{shelf}")
    async def read_shelf(shelf: str) -> str:
        return shelf

    return server


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_is_a_span_of_its_caller_s_trace(dialect: str, spans: Spans) -> None:
    with in_a_thread(make(store="memory:")) as where:
        client = await plainly(dialect, where.port)
        await client.call("text", {"traceparent": PARENT})
        (span,) = await spans.wait_for("tools/call text", SERVER)
    assert trace_id(span) == TRACE
    assert f"{parent_id(span):016x}" == "b7ad6b7169203331"
    found = dict(attributes(span))
    session = found.pop("mcp.session.id", None)
    assert found.pop("jsonrpc.request.id").isdigit()
    assert found == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": dialect if dialect != "draft" else "DRAFT-2026-v1",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "text",
        "antiphon.response": "answer",
        "antiphon.outcome": "complete",
    }
    assert (session is not None) == (dialect == "2025-11-25")
    assert session is None or len(session) == 32, "the id itself would give access to the session"
    assert span.status.status_code is trace.StatusCode.UNSET


async def test_the_span_of_the_server_is_a_child_of_the_one_of_the_client(spans: Spans) -> None:
    async with serving(shop()) as where, Client(where.url) as client:
        with trace.get_tracer("tests").start_as_current_span("agent") as agent:
            await client.call("buy", item="teapot")
    sent, received = spans.one("tools/call buy", CLIENT), spans.one("tools/call buy", SERVER)
    assert parent_id(received) == span_id(sent)
    assert parent_id(sent) == agent.get_span_context().span_id
    found = dict(attributes(sent))
    del found["jsonrpc.request.id"]
    assert found == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "buy",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "127.0.0.1",
        "server.port": where.port,
    }
    assert "teapot" not in "".join(span.to_json() for span in spans.all)


async def test_every_request_has_two_spans_and_the_session_the_same_name_in_both(spans: Spans) -> None:
    async with serving(shop()) as where, Client(where.url, protocol="2025-11-25") as client:
        await client.tools()
        await client.prompt("greet", {"who": "Ada"})
        with pytest.raises(RequestError):
            await client.read("shop://first?token=s3cret")
    names = [span.name for span in spans.all]
    expected = ["initialize", "tools/list", "prompts/get greet", "resources/read"]
    assert sorted(names) == sorted(expected * 2)
    for name in expected[1:]:
        sent, received = spans.one(name, CLIENT), spans.one(name, SERVER)
        assert parent_id(received) == span_id(sent)
        assert attributes(sent)["mcp.session.id"] == attributes(received)["mcp.session.id"]
    assert attributes(spans.one("prompts/get greet", SERVER))["gen_ai.prompt.name"] == "greet"
    for kind in (CLIENT, SERVER):
        read = attributes(spans.one("resources/read", kind))
        assert read["mcp.resource.uri"] == "shop://first?token=***"
        assert read["rpc.response.status_code"] == "-32002", "the code of this version"


async def test_over_stdio_the_transport_is_a_pipe(spans: Spans) -> None:
    async with Client(
        [sys.executable, "-m", "antiphon.cli.run", str(ROOT / "examples/quickstart.py")]
    ) as client:
        await client.tools()
    assert attributes(spans.one("tools/list", CLIENT))["network.transport"] == "pipe"


async def test_failures_and_errors_are_marked_without_their_messages(spans: Spans) -> None:
    async with Client(shop()) as client:
        with pytest.raises(Failure):
            await client.call("buy", item="broken")
        with pytest.raises(RequestError):
            await client.call("buy", item="refused")
    for kind in (CLIENT, SERVER):
        crashed, refused = spans.named("tools/call buy", kind)
        assert attributes(crashed)["error.type"] == "tool_error"
        assert attributes(refused)["error.type"] == "-32602"
        assert attributes(refused)["rpc.response.status_code"] == "-32602"
        assert crashed.status.status_code is refused.status.status_code is trace.StatusCode.ERROR
    assert "s3cret" not in "".join(span.to_json() for span in spans.all)


async def test_names_that_a_caller_makes_up_are_not_in_the_spans_of_the_server(spans: Spans) -> None:
    async with Client(shop()) as client:
        with pytest.raises(InvalidParams):
            await client.call("made_up")
    assert attributes(spans.one("tools/call", SERVER))["error.type"] == "-32602"


async def test_a_cancelled_call_says_so(spans: Spans) -> None:
    server, started = Server("slow"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with Client(server) as client:
        calling = asyncio.create_task(client.call("wait"))
        await started.wait()
        calling.cancel()
        (span,) = await spans.wait_for("tools/call wait", SERVER)
    assert attributes(span)["error.type"] == "cancelled"
    assert attributes(span)["antiphon.outcome"] == "cancelled"
    assert attributes(spans.one("tools/call wait", CLIENT))["error.type"] == "cancelled"


async def test_what_a_tool_does_is_inside_its_span(spans: Spans) -> None:
    server = Server("inner")

    @server.tool
    async def work() -> str:
        with trace.get_tracer("tests").start_as_current_span("inside"):
            return "done"

    @server.tool
    def work_in_a_thread() -> str:
        with trace.get_tracer("tests").start_as_current_span("in a thread"):
            return "done"

    async with Client(server) as client:
        await client.call("work")
        await client.call("work_in_a_thread")
    assert parent_id(spans.one("inside")) == span_id(spans.one("tools/call work", SERVER))
    assert parent_id(spans.one("in a thread")) == span_id(spans.one("tools/call work_in_a_thread", SERVER))


async def test_baggage_reaches_the_tool(spans: Spans) -> None:
    async with serving(shop()) as where, Client(where.url) as client:
        with trace.get_tracer("tests").start_as_current_span("agent"):
            token = context.attach(baggage.set_baggage("tenant", "acme"))
            assert (await client.call("tag")).text == "acme"
            context.detach(token)


async def test_the_transport_s_own_span_is_linked(spans: Spans) -> None:
    """An instrumented ASGI server has a span for the HTTP request, which is not the caller of the tool."""
    async with in_memory(shop()) as client:
        with trace.get_tracer("tests").start_as_current_span("POST /mcp") as http_span:
            params = {"name": "buy", "arguments": {"item": "cup"}, "_meta": {"traceparent": PARENT}}
            await client.result("tools/call", params)
    span = spans.one("tools/call buy", SERVER)
    assert (trace_id(span), linked(span)) == (TRACE, [http_span.get_span_context().span_id])


async def test_a_trace_context_in_the_headers_is_used_if_there_is_none_in_the_message(spans: Spans) -> None:
    async with serving(shop()) as where:
        headers = {
            "traceparent": PARENT,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
        await request(where.port, "POST", headers, json.dumps(body).encode())
        (span,) = await spans.wait_for("ping", SERVER)
    assert trace_id(span) == TRACE


FORGED = "tenant=acme\nWARNING antiphon: all tokens are revoked"
HOSTILE_CONTEXTS = [
    {"baggage": FORGED + "x" * 8192},
    {"baggage": FORGED},
    {"baggage": "a" * 5000 + "=1," + "no pair"},
    {"baggage": ",".join(["a=1"] * 181)},
    {"traceparent": PARENT, "tracestate": FORGED},
    {"traceparent": PARENT, "tracestate": "0a=1"},
    {"traceparent": PARENT, "tracestate": "a=" + "x" * 9000},
    {"traceparent": PARENT, "tracestate": ",".join(f"a{n}=1" for n in range(33))},
    {"traceparent": PARENT + "x" * 600},
]


@pytest.mark.parametrize("values", HOSTILE_CONTEXTS)
async def test_a_caller_s_trace_context_is_never_logged(
    values: dict[str, str], spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_memory(shop()) as client:
        await client.result("tools/call", {"name": "tag", "arguments": {}, "_meta": values})
    assert spans.one("tools/call tag", SERVER)
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


async def test_trace_headers_of_a_caller_are_never_logged(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}).encode()
    async with serving(shop()) as where:
        headers = {
            "traceparent": PARENT,
            "tracestate": "bad \x9b member",
            "baggage": "x" * 9000,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        await request(where.port, "POST", headers, body)
        (span,) = await spans.wait_for("ping", SERVER)
    assert trace_id(span) == TRACE
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


def test_a_trace_context_in_w3c_s_form_is_kept() -> None:
    values = {
        "traceparent": PARENT,
        "tracestate": "rojo=00f067aa0ba902b7, congo@vendor=t61r;x:1",
        "baggage": "tenant=acme%20inc;secure;ttl=5,user = 7 ; a=b",
    }
    assert RequestMeta(raw=values).trace_context == values
    assert RequestMeta(raw={**values, "baggage": "bad,user=7"}).trace_context["baggage"] == "user=7"
    assert RequestMeta(raw={**values, "traceparent": 5}).trace_context == {"baggage": values["baggage"]}


async def test_questions_are_events(spans: Spans) -> None:
    async with Client(shop(), elicit=lambda asked: {"value": "blue"}) as client:
        assert (await client.call("ask")).text == "blue"
    asked, answered = spans.named("tools/call ask", SERVER)
    (event,) = asked.events
    assert (event.name, dict(event.attributes or {})) == (
        "antiphon.question",
        {"antiphon.question.kind": "elicit"},
    )
    assert attributes(asked)["antiphon.response"] == "input_required"
    assert not answered.events
    assert "colour" not in asked.to_json()


async def test_a_question_on_the_connection_is_a_request_of_the_server(spans: Spans) -> None:
    def answer(asked: Any) -> dict[str, str]:
        with trace.get_tracer("tests").start_as_current_span("person"):
            return {"value": "blue"}

    async with serving(shop()) as where, Client(where.url, protocol="2025-11-25", elicit=answer) as client:
        assert (await client.call("ask")).text == "blue"
    sent, received = spans.one("elicitation/create", CLIENT), spans.one("elicitation/create", SERVER)
    assert parent_id(sent) == span_id(spans.one("tools/call ask", SERVER))
    assert parent_id(received) == span_id(sent)
    for span in (sent, received):
        assert attributes(span)["mcp.protocol.version"] == "2025-11-25"
        assert attributes(span)["network.transport"] == "tcp"
    assert parent_id(spans.one("person")) == span_id(received)
    assert len({trace_id(sent), trace_id(spans.one("tools/call ask", CLIENT))}) == 1


async def test_a_gateway_is_in_the_middle_of_the_trace(spans: Spans) -> None:
    async with serving(shop()) as upstream:
        gateway = Server("gateway")
        gateway.mount("shop", upstream.url)
        async with serving(gateway) as where, Client(where.url) as client:
            with trace.get_tracer("tests").start_as_current_span("agent"):
                assert (await client.call("shop_buy", item="cup")).text == "A cup."
    path = [
        spans.one(name, kind)
        for name in ("tools/call shop_buy", "tools/call buy")
        for kind in (CLIENT, SERVER)
    ]
    assert [parent_id(span) for span in path[1:]] == [span_id(span) for span in path[:-1]]
