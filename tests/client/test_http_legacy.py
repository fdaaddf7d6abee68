"""Versions with sessions over HTTP: the handshake, the session, and streams that break."""

import asyncio
from typing import Any

import pytest

from antiphon.client import Client
from antiphon.errors import (
    SessionLost,
    TimedOut,
    Unreachable,
    UnsupportedVersion,
)
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.testing import Clock
from tests.client.fakes import Answer, Heard, Reply, legacy, serving

DONE = {"content": [{"type": "text", "text": "Done."}]}


async def done(reply: Reply) -> None:
    await reply.result(DONE)


async def no_stream(reply: Reply) -> None:
    if reply.request.verb == "GET":
        await reply.head(405, None, content_length="0")
    else:
        await reply.result(DONE)


@pytest.mark.parametrize("code", [-32601, -32602, -32000])
async def test_a_server_that_refuses_the_first_question_is_asked_the_second(code: int) -> None:
    inner = legacy(done)

    async def answer(reply: Reply) -> None:
        if reply.request.method == "server/discover":
            await reply.error(code)
        else:
            await inner(reply)

    async with serving(answer) as fake, Client(fake.url) as client:
        assert client.version == "2025-11-25"
    assert fake.methods() == ["server/discover", "initialize", "notifications/initialized", "DELETE"]


async def test_the_session_and_the_version_are_named_from_then_on() -> None:
    async with serving(legacy(done, version="2025-03-26")) as fake, Client(fake.url) as client:
        await client.call("tool")
        assert client.version == "2025-03-26"
    after = fake.heard[2:]
    assert [request.headers.get("mcp-session-id") for request in after] == ["s1", "s1", "s1"]
    assert [request.headers.get("mcp-protocol-version") for request in after] == ["2025-03-26"] * 3
    assert after[-1].verb == "DELETE"


async def test_without_a_session_nothing_is_deleted() -> None:
    async with serving(legacy(done, session=None)) as fake, Client(fake.url) as client:
        await client.call("tool")
    assert fake.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/call"]


async def test_a_version_that_the_client_does_not_speak_is_refused() -> None:
    async with serving(legacy(done, version="1999-01-01")) as fake:
        with pytest.raises(UnsupportedVersion, match="1999-01-01"):
            async with Client(fake.url):
                pass


async def test_a_forced_version_is_not_lowered() -> None:
    async with serving(legacy(done, version="2025-06-18")) as fake:
        with pytest.raises(UnsupportedVersion, match="2025-06-18"):
            async with Client(fake.url, protocol="2025-11-25"):
                pass


def forgetful(times: int) -> Answer:
    """A server that loses its session so many times."""
    lost = iter(range(times))

    async def answer(reply: Reply) -> None:
        if next(lost, None) is None:
            await reply.result(DONE)
        else:
            await reply.body(404, "text/plain", b"Who?")

    return legacy(answer)


async def test_a_lost_session_is_opened_again_and_the_request_repeated() -> None:
    async with serving(forgetful(1)) as fake, Client(fake.url) as client:
        assert (await client.call("tool")).text == "Done."
    assert fake.methods()[3:] == [
        "tools/call",
        "initialize",
        "notifications/initialized",
        "tools/call",
        "DELETE",
    ]
    assert "mcp-session-id" not in fake.heard[4].headers


async def test_a_session_that_is_lost_twice_is_an_error() -> None:
    async with serving(forgetful(2)) as fake, Client(fake.url) as client:
        with pytest.raises(SessionLost):
            await client.call("tool")


def breaking(resumed: Answer) -> Answer:
    """A server whose stream breaks before the response."""

    async def answer(reply: Reply) -> None:
        if reply.request.verb == "GET":
            await resumed(reply)
        else:
            await reply.events()
            await reply.raw(b"id: e1\nretry: 100\ndata: \n\n")

    return legacy(answer)


def call_of(heard: list[Heard]) -> Any:
    return next(request.id for request in heard if request.method == "tools/call")


async def test_a_broken_stream_is_taken_up_again_after_the_wait_that_was_asked_for() -> None:
    broken = asyncio.Event()

    async def answer(reply: Reply) -> None:
        if reply.request.method == "ping":
            await reply.result({})
            return
        await reply.events()
        if reply.request.verb == "POST":
            await reply.raw(b"id: e1\nretry: 300000\ndata: \n\n")
            broken.set()
        else:
            await reply.event({"id": call_of(fake.heard), "result": DONE}, id="e2")
            await reply.hang()

    with Clock() as clock:
        async with serving(legacy(answer)) as fake, Client(fake.url, timeout=3600) as client:
            calling = asyncio.create_task(client.call("tool"))
            await broken.wait()
            await clock.advance(200)
            await client.ping()
            assert "GET" not in fake.methods()
            while "GET" not in fake.methods():
                await clock.advance(100)
            assert (await calling).text == "Done."
    [resumed] = [heard for heard in fake.heard if heard.verb == "GET"]
    assert resumed.headers["last-event-id"] == "e1"


async def test_a_stream_that_stays_broken_is_given_up() -> None:
    async def again(reply: Reply) -> None:
        await reply.events()
        await reply.raw(b"retry: 1\n\n")

    async with serving(breaking(again)) as fake, Client(fake.url) as client:
        with pytest.raises(Unreachable, match="it could not be resumed"):
            await client.call("tool")
    assert fake.methods().count("GET") == 5


async def test_a_session_lost_with_a_stream_does_not_repeat_the_call() -> None:
    async def gone(reply: Reply) -> None:
        await reply.head(404, None, content_length="0")

    async with serving(breaking(gone)) as fake, Client(fake.url) as client:
        with pytest.raises(Unreachable, match="lost the stream"):
            await client.call("tool")
    assert fake.methods().count("tools/call") == 1


def hanging(called: asyncio.Event) -> Answer:
    """A server that never answers a call."""

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tools/call":
            called.set()
            await reply.hang()
        await reply.head(202, None, content_length="0")

    return legacy(answer)


async def test_a_call_that_times_out_is_cancelled_at_the_server() -> None:
    async with serving(hanging(asyncio.Event())) as fake:
        async with Client(fake.url) as client:
            with pytest.raises(TimedOut):
                await client.call("tool", timeout=0.1)
        call, cancel = fake.heard[3:5]
    assert cancel.method == "notifications/cancelled"
    assert cancel.params["requestId"] == call.id


async def test_a_caller_that_goes_away_cancels_at_the_server() -> None:
    called = asyncio.Event()
    async with serving(hanging(called)) as fake:
        async with Client(fake.url) as client:
            calling = asyncio.create_task(client.call("tool"))
            await called.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        assert fake.heard[4].method == "notifications/cancelled"


async def test_changes_come_on_the_stream_outside_of_requests() -> None:
    heard: asyncio.Queue[Change] = asyncio.Queue()
    subscribed = asyncio.Event()

    async def answer(reply: Reply) -> None:
        if reply.request.verb == "GET":
            await reply.events()
            await subscribed.wait()
            await reply.event({"method": "notifications/tools/list_changed"})
            await reply.event({"method": "notifications/resources/updated", "params": {"uri": "memo://x"}})
            await reply.hang()
        else:
            await reply.result({})
            subscribed.set()

    async with serving(legacy(answer)) as fake, Client(fake.url, on_change=heard.put_nowait) as client:
        await client.subscribe("memo://x")
        changes = [await asyncio.wait_for(heard.get(), 30) for _ in range(2)]
        await client.unsubscribe("memo://x")
    assert changes == [ListChanged("tools"), ResourceUpdated("memo://x")]
    assert [m for m in fake.methods() if m.startswith("resources/")] == [
        "resources/subscribe",
        "resources/unsubscribe",
    ]


async def test_a_server_without_a_stream_outside_of_requests_is_left_in_peace() -> None:
    async with serving(legacy(no_stream)) as fake, Client(fake.url, on_change=print) as client:
        await client.call("tool")
        with Clock() as clock:
            await clock.advance(hours=1)
        await client.call("tool")
    assert fake.methods().count("GET") == 1


async def test_the_log_level_is_set_once_and_again_in_a_new_session() -> None:
    lost = iter([True])

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tools/call" and next(lost, False):
            await reply.head(404, None, content_length="0")
        else:
            await reply.result({} if reply.request.method == "logging/setLevel" else DONE)

    async with serving(legacy(answer)) as fake, Client(fake.url, log_level="error") as client:
        await client.call("tool")
    levels = [request.params["level"] for request in fake.heard if request.method == "logging/setLevel"]
    assert levels == ["error", "error"]
