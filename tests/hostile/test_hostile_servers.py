"""Servers that attack the client: an error in time, in bounded memory, without a busy loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from antiphon import Client
from antiphon.errors import AntiphonError, BadAnswer, SessionLost, TimedOut, Unreachable
from antiphon.transport.client.http_response import EventCursor
from tests.client.fakes import Answer, Reply, legacy, modern, serving
from tests.hostile.hostile_server import (
    EVERYTHING,
    connect,
    connected,
    cpu_seconds,
    fails_as_ours,
    hostile_server,
    scripted,
    text,
)
from tests.support.loop_time import LoopTime
from tests.support.polling import turns, until

# Session ids, event ids and retries


@pytest.mark.parametrize("session", ["säß", "a b", "a\tb", "\x01", "☃", "x" * 9000])
async def test_a_session_id_that_no_header_can_carry_is_a_bad_answer(session: str) -> None:
    with pytest.raises((BadAnswer, Unreachable)):
        async with connected(legacy(Reply.hang, session=session)):
            pass


@pytest.mark.parametrize("event_id", ["säß", "\x01", "☃" * 10, "x" * 100_000, " a "])
async def test_an_event_id_that_no_header_can_carry_is_not_sent_back(event_id: str) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await reply.raw(f"id: {event_id}\nretry: 0\ndata:\n\n".encode())

    async with connected(legacy(answer)) as (client, fake):
        with pytest.raises(Unreachable):
            await client.call("tool")
    assert all("last-event-id" not in request.headers for request in fake.heard)


@pytest.mark.parametrize(
    ("asked", "first"), [(0, 0.1), (0.001, 0.1), (0.5, 0.5), (2, 2), (600, 600), (999_999_999, 600)]
)
def test_the_delay_that_a_server_asks_for_has_bounds(asked: float, first: float) -> None:
    cursor = EventCursor()
    cursor.retry_after(asked)
    delays = [cursor.backoff.next_delay() for _ in range(20)]
    assert delays[0] == first
    assert max(delays) <= 600


async def test_a_stream_that_breaks_at_once_is_not_opened_in_a_loop() -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.verb == "GET":
            await reply.events()
            await reply.raw(b"retry: 0\n\n")
        else:
            await reply.result(text("done"))

    def opened() -> int:
        return sum(request.verb == "GET" for request in fake.heard)

    async with connected(legacy(answer), on_log=print) as (client, fake):
        time = LoopTime.here()
        with time.stopped():
            await client.call("tool")
            await time.let(opened)
            for _ in range(10):
                await client.call("tool")
            assert opened() == 1
        await time.advance_until(lambda: opened() >= 3, 0.1)


async def test_a_server_that_loses_every_session_is_given_up() -> None:
    async def answer(reply: Reply) -> None:
        await reply.body(404, "text/plain", b"")

    async with serving(legacy(answer)) as fake:
        async with Client(fake.url, timeout=60, log_level="info") as client:
            with pytest.raises(SessionLost):
                await client.call("tool")
        assert sum(request.method == "initialize" for request in fake.heard) <= 5


# Streams and bodies without an end


async def drip(reply: Reply, data: bytes) -> None:
    await reply.events()
    while True:
        await reply.raw(data)
        await turns()


@pytest.mark.parametrize(
    "data",
    [b":\n\n", b": comment\n" * 1000, b"id: 1\n\n", b"retry: 1\n\n", b"event: other\ndata: x\n\n", b"\r"],
)
async def test_a_stream_without_messages_does_not_move_the_deadline(data: bytes) -> None:
    async with connected(modern(lambda reply: drip(reply, data))) as (client, _):
        with pytest.raises(TimedOut):
            await client.call("tool", timeout=0.5)


@pytest.mark.parametrize("start", [b"data: ", b": ", b"id: ", b"retry: ", b"x", b""])
async def test_a_line_without_an_end_is_a_bad_answer(start: bytes) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await reply.raw(start)
        while True:
            await reply.raw(b"x" * 65536)

    async with connected(modern(answer)) as (client, _):
        with pytest.raises(BadAnswer, match="more than 1048576 bytes"):
            await client.call("tool")


async def test_a_long_line_is_read_in_linear_time() -> None:
    size = 32 * 1024 * 1024

    async def answer(reply: Reply) -> None:
        await reply.events()
        await reply.raw(b"data: " + b"x" * size)
        await reply.hang()

    async with connected(modern(answer), timeout=60, max_message=size) as (client, _):
        began = cpu_seconds()
        with pytest.raises(BadAnswer, match="more than"):
            await client.call("tool")
        # Scanning the whole buffer for each chunk would read 8 GB.
        assert cpu_seconds() - began < 20


async def never_ends(reply: Reply) -> None:
    await reply.head(200, "application/json")
    while True:
        await reply.raw(b" ")
        await turns()


async def too_short(reply: Reply) -> None:
    await reply.head(200, "application/json", content_length="5")
    await reply.raw(b'{"jsonrpc":"2.0","id":2,"result":{}}')


async def too_long(reply: Reply) -> None:
    await reply.head(200, "application/json", content_length=str(10**15))
    await reply.raw(b"{}")


async def negative(reply: Reply) -> None:
    await reply.head(200, "application/json", content_length="-1")
    await reply.raw(b"{}")


async def two_lengths(reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}")


async def no_http(reply: Reply) -> None:
    await reply.raw(b"\x00\xff" * 1000)


async def huge_head(reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\n" + b"a: " + b"x" * 10_000_000 + b"\r\n\r\n")


async def informational(reply: Reply) -> None:
    while True:
        await reply.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        await turns()


async def bad_chunks(reply: Reply) -> None:
    await reply.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    await reply.raw(b"ffffffffffffffff\r\n{}")


async def bomb(reply: Reply) -> None:
    await reply.body(200, "application/json", b"\x1f\x8b", content_encoding="gzip, gzip, br")


async def refused_for_ever(reply: Reply) -> None:
    await reply.head(400, "application/json")
    while True:
        await reply.raw(b"[")
        await turns()


ENDLESS = (never_ends, refused_for_ever)


async def redirected(reply: Reply) -> None:
    await reply.head(308, None, location="/mcp", content_length="0")


@pytest.mark.parametrize(
    "answer",
    [
        never_ends,
        too_short,
        too_long,
        negative,
        two_lengths,
        no_http,
        huge_head,
        informational,
        bad_chunks,
        bomb,
        refused_for_ever,
        redirected,
    ],
    ids=lambda each: each.__name__,
)
async def test_http_that_lies_is_an_error_in_time(answer: Answer) -> None:
    def called() -> int:
        return sum(request.method == "tools/call" for request in fake.heard)

    async with connected(modern(answer), timeout=600) as (client, fake):
        calling = asyncio.create_task(client.call("tool"))
        if answer in ENDLESS:
            await until(called)
            await LoopTime.here().advance_until(calling.done, 700)
        with pytest.raises(AntiphonError) as caught:
            await calling
    assert isinstance(caught.value, TimedOut) == (answer in ENDLESS), caught.value
    assert called() == 1


# JSON that is deep, wide or large


@pytest.mark.parametrize("depth", [100, 500, 900, 1100, 5000, 100_000])
@pytest.mark.parametrize("kind", ["list", "object"])
async def test_json_of_any_depth_is_a_result_or_an_error(depth: int, kind: str) -> None:
    opening, closing = (b"[", b"]") if kind == "list" else (b'{"a":', b"}")
    deep = opening * depth + b"1" + closing * depth

    async def answer(reply: Reply) -> None:
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s,"tools":[{"name":"a",'
        body += b'"inputSchema":{"a":%s}}],"capabilities":%s,"resultType":"complete"}}'
        await reply.body(200, "application/json", body % (reply.request.id, deep, deep, deep))

    async with connected(modern(answer, **EVERYTHING)) as (client, _):
        for work in (client.call("tool"), client.tools(), client.ping(), client.resources()):
            await asyncio.gather(fails_as_ours(work))
    with hostile_server(answer) as fake:
        await fails_as_ours(connect(fake.url))


async def test_a_message_of_many_lists_is_refused_before_they_are_built() -> None:
    async def answer(reply: Reply) -> None:
        lists = b"[]," * 2_000_000
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[%s[]]}}' % (reply.request.id, lists)
        await reply.body(200, "application/json", body)

    async with connected(modern(answer), max_message=64 * 1024 * 1024, timeout=30) as (client, _):
        with pytest.raises(BadAnswer, match="more than 1000000 lists and objects"):
            await client.call("tool")


async def test_an_answer_of_100_megabytes_is_refused() -> None:
    async def answer(reply: Reply) -> None:
        await reply.head(200, "application/json", content_length=str(100 * 1024 * 1024))
        for _ in range(100):
            await reply.raw(b"x" * 1024 * 1024)

    async with connected(modern(answer), max_message=64 * 1024 * 1024, timeout=60) as (client, _):
        with pytest.raises(BadAnswer, match="more than 67108864 bytes"):
            await client.call("tool")


# Lists


async def test_tools_by_the_million_are_refused() -> None:
    page = b",".join([b"5"] * 1_000_001)

    async def answer(reply: Reply) -> None:
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%s]}}' % (reply.request.id, page)
        await reply.body(200, "application/json", body)

    async with connected(modern(answer, tools={}), max_message=64 * 1024 * 1024, timeout=30) as (client, _):
        with pytest.raises(BadAnswer, match="a page of 1000001 tools"):
            await client.tools()


async def test_a_list_with_many_unreadable_entries_logs_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with connected(scripted({"tools/list": {"tools": [5] * 5000}}, tools={})) as (client, _):
        assert await client.tools() == []
    assert len(caplog.records) == 11
    assert "4990 more" in caplog.text


async def test_a_list_that_comes_slowly_ends_with_the_deadline() -> None:
    """Each page comes in less than the deadline, and all of them do not."""
    asked = released = 0

    async def answer(reply: Reply) -> None:
        nonlocal asked
        asked = page = asked + 1
        await until(lambda: released >= page)
        await reply.result({"tools": [], "tasks": [], "nextCursor": str(page)})

    async def ends(listing: Coroutine[Any, Any, object], match: str) -> None:
        nonlocal asked, released
        asked = released = 0
        work = asyncio.create_task(listing)
        for page in range(1, 4):
            await until(lambda: asked == page)  # noqa: B023 - it is awaited here
            LoopTime.here().advance(250)
            released = page
        with pytest.raises(TimedOut, match=match):
            await work

    async with connected(modern(answer, tools={}), timeout=600) as (client, _):
        await ends(client.tools(), "the list of tools")
    tasks = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    async with connected(legacy(answer, tasks=tasks), timeout=600, protocol="2025-11-25") as (client, _):
        await ends(client.tasks(), "the list of tasks")


LOOP: dict[str, Any] = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
EXPONENTIAL: dict[str, Any] = {
    "properties": {"x": {"$ref": "#/$defs/n0"}},
    "$defs": {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 50} for i in range(50)},
}
ODD = [
    True,
    [],
    5,
    "x",
    None,
    {"type": {}},
    {"type": [[], {}, 5]},
    {"anyOf": 5},
    {"enum": 5},
    {"enum": [[], {}]},
]
ODD += [
    {"$ref": 5},
    {"$ref": "#/" + "a/" * 10_000},
    {"oneOf": {"a": 1}},
    {"const": {}},
    {"pattern": "(a+)+$"},
]
SCHEMAS: list[Any] = [
    LOOP,
    {"properties": {"x": LOOP}, "required": ["x"], **LOOP},
    EXPONENTIAL,
    {"properties": {f"p{i}": {"$ref": "#/$defs/n0"} for i in range(2000)}, "$defs": EXPONENTIAL["$defs"]},
    {"properties": {"x": {"enum": list(range(100_000))}}},
    {"properties": {str(i): {} for i in range(50_000)}},
    *({"properties": {"x": each}, "required": ["x"]} for each in ODD),
    *({"properties": each} for each in ODD),
    *({"required": each} for each in ODD),
    *({"x-mcp-header": each} for each in ODD),
    *({"properties": {"x": {"type": "string", "x-mcp-header": each}}} for each in ODD),
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
async def test_any_schema_of_a_tool_can_be_listed_and_called(number: int) -> None:
    from antiphon.cli.call.arguments import parse_arguments
    from antiphon.cli.exit_codes import CommandError
    from antiphon.cli.tools import signature

    listed = {"tools": [{"name": "tool", "inputSchema": SCHEMAS[number]}]}
    answers = {"tools/list": listed, "tools/call": text("done")}
    async with connected(scripted(answers, tools={}), max_message=64 * 1024 * 1024) as (client, _):
        began = cpu_seconds()
        for tool in await client.tools():
            assert signature(tool).startswith("tool(")
            try:
                parse_arguments(["x=1", "p1=a"], None, tool.input_schema)
            except CommandError:
                pass
        await client.call("tool", {"x": "a" * 50})
        assert cpu_seconds() - began < 10
