"""The form of a response: JSON without notifications, else an event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from antiphon import Context, Limits, Server
from tests.support import http
from tests.support.polling import until
from tests.support.serving import Address, serving
from tests.support.speakers import DIALECTS, JSON, KEY, Bare, Modern, Session, speaker

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("way")]


def build() -> Server:
    server = Server("tests")

    @server.tool
    async def quiet() -> str:
        return "quiet"

    @server.tool
    async def chatty(ctx: Context) -> str:
        for number in range(1, 4):
            await ctx.progress(number, 3)
        await ctx.info("almost")
        return "done"

    @server.tool
    async def big() -> str:
        return "x" * 1_000_000

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(way: str) -> AsyncIterator[Address]:
    async with serving(build()) as where:
        yield where


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_without_notifications_is_answered_with_json(address: Address, dialect: str) -> None:
    response = await (await speaker(dialect, address.port)).call("quiet")
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert response.text == "quiet"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_with_notifications_is_answered_with_a_stream(address: Address, dialect: str) -> None:
    response = await (await speaker(dialect, address.port)).call("chatty", {"progressToken": "tok"})
    assert response.headers["content-type"] == "text/event-stream"
    assert "no-cache" in response.headers["cache-control"]
    progress = [
        frame["params"] for frame in response.frames if frame.get("method") == "notifications/progress"
    ]
    assert [(each["progressToken"], each["progress"]) for each in progress] == [
        ("tok", 1),
        ("tok", 2),
        ("tok", 3),
    ]
    assert response.text == "done"
    assert response.frame["id"] == 1


async def test_only_streams_of_sessions_can_be_resumed(address: Address) -> None:
    response = await (await speaker("modern", address.port)).call("chatty", {"progressToken": 1})
    assert all(event.id is None and event.retry is None for event in response.events)
    response = await (await speaker("bare", address.port)).call("chatty", {"progressToken": 1})
    # The draft prints ids (SEP-1905). After a lost stream, `tasks/result` goes on by the numbers of segments.
    assert [event.id for event in response.events] == [f"event-{n}" for n in range(1, 5)]
    assert all(event.data and event.retry is None for event in response.events)
    response = await (await speaker("session", address.port)).call("chatty", {"progressToken": 1})
    first, *others = response.events
    assert first.data == ""
    assert first.retry is not None
    ids = [event.id for event in response.events]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    assert len(others) == 5


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_message_is_an_event_of_the_type_message(address: Address, dialect: str) -> None:
    response = await (await speaker(dialect, address.port)).call("chatty", {"progressToken": 1})
    events = [event for event in response.body.decode().split("\n\n") if "data: {" in event]
    assert len(events) == len(response.frames) >= 4
    for event in events:
        names = [line.partition(": ")[0] for line in event.split("\n")]
        assert names == (["event", "data"] if dialect == "modern" else ["event", "id", "data"])
        assert event.startswith("event: message\n")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_accepts_no_streams_gets_json(address: Address, dialect: str) -> None:
    asker = await speaker(dialect, address.port)
    params = asker.tool_call("chatty", {"progressToken": "tok"})
    response = await asker.ask("tools/call", params, headers={"accept": "application/json"})
    assert response.headers["content-type"] == "application/json"
    assert response.text == "done"


@pytest.mark.parametrize("accept", ["text/event-stream", "text/event-stream, application/json"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_prefers_streams_gets_a_stream(
    address: Address, dialect: str, accept: str
) -> None:
    asker = await speaker(dialect, address.port)
    response = await asker.ask("tools/call", asker.tool_call("quiet"), headers={"accept": accept})
    assert response.is_stream
    assert response.text == "quiet"


async def test_log_messages_are_sent_from_the_requested_level_on(address: Address) -> None:
    def logged(response: http.Response) -> list[str]:
        return [
            frame["params"]["data"]
            for frame in response.frames
            if frame.get("method") == "notifications/message"
        ]

    modern = Modern(address.port)
    assert logged(await modern.call("chatty")) == []
    assert logged(await modern.call("chatty", {KEY + "logLevel": "info"})) == ["almost"]
    assert logged(await modern.call("chatty", {KEY + "logLevel": "error"})) == []
    assert logged(await Bare(address.port).call("chatty")) == []
    session = Session(address.port)
    await session.open()
    assert logged(await session.call("chatty")) == ["almost"]
    await session.ask("logging/setLevel", {"level": "warning"})
    assert logged(await session.call("chatty")) == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_notification_gets_an_empty_response(address: Address, dialect: str) -> None:
    asker = await speaker(dialect, address.port)
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/unheard/of"):
        response = await asker.tell(method, {"requestId": []})
        assert (response.status, response.body) == (202, b"")


async def test_one_connection_carries_many_requests(address: Address) -> None:
    headers, frame = Modern(address.port).build("tools/call", {"name": "quiet"})
    async with http.connect(address.port) as connection:
        for number in range(50):
            body = http.json.dumps({**frame, "id": number}).encode()
            await connection.send("POST", "/mcp", headers, body)
            response = await connection.receive()
            assert (response.frame["id"], response.text) == (number, "quiet")


async def test_pipelined_requests_are_answered_in_order(address: Address) -> None:
    headers, frame = Modern(address.port).build("tools/call", {"name": "quiet"})
    async with http.connect(address.port) as connection:
        for number in range(10):
            await connection.send("POST", "/mcp", headers, http.json.dumps({**frame, "id": number}).encode())
        assert [(await connection.receive()).frame["id"] for _ in range(10)] == list(range(10))


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_a_body_may_arrive_in_parts(address: Address, size: int) -> None:
    body = http.json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"pad": "x" * 2000}}
    ).encode()
    async with http.connect(address.port) as connection:
        await connection.write(http.head("POST", "/mcp", {**JSON, "transfer-encoding": "chunked"}, None))
        for start in range(0, len(body), size):
            piece = body[start : start + size]
            await connection.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
        await connection.write(b"0\r\n\r\n")
        assert (await connection.receive()).result == {"resultType": "complete"}


async def test_a_large_answer_arrives_whole(address: Address) -> None:
    assert len((await Bare(address.port).call("big")).text) == 1_000_000


async def test_concurrent_calls_get_only_their_own_notifications(address: Address) -> None:
    asker = Modern(address.port)
    responses = await asyncio.gather(*(asker.call("chatty", {"progressToken": n}) for n in range(50)))
    for number, response in enumerate(responses):
        tokens = {frame["params"]["progressToken"] for frame in response.frames if "method" in frame}
        assert tokens == {number}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_silent_stream_is_kept_alive_with_comments(dialect: str) -> None:
    server = Server("tests", limits=Limits(keep_alive_interval=0.2))
    release = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await release.wait()
        return "done"

    async with serving(server) as where:
        asker = await speaker(dialect, where.port)
        async with asker.asking("tools/call", asker.tool_call("wait")) as connection:
            assert (await connection.receive_head()).is_stream
            comments = 0
            last = None
            async for event in connection.events():
                comments += event.comment
                last = event
                if comments == 3:
                    release.set()
            assert last is not None
            assert last.frame["result"]["content"][0]["text"] == "done"


async def test_a_client_that_accepts_no_streams_gets_no_comments() -> None:
    """While another client gets them."""
    server, release, begun = Server("tests", limits=Limits(keep_alive_interval=0.1)), asyncio.Event(), []

    @server.tool
    async def wait() -> str:
        begun.append("call")
        await release.wait()
        return "done"

    async with serving(server) as where:
        asker = Modern(where.port)
        params = asker.tool_call("wait")
        asking = asyncio.create_task(asker.ask("tools/call", params, headers={"accept": "application/json"}))
        await until(lambda: begun)
        async with asker.asking("tools/call", params) as connection:
            await connection.receive_head()
            events = connection.events()
            assert [(await anext(events)).comment for _ in range(3)] == [True] * 3
            release.set()
        response = await asking
        assert response.headers["content-type"] == "application/json"
        assert response.text == "done"
