"""The channels of the client: connections that are closed, break, or bring unexpected messages."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from antiphon import Context, Server
from antiphon.errors import ProcessEnded, Unreachable
from antiphon.transport.client import stdio as process
from antiphon.transport.client.channel import Channel, Receiver
from antiphon.transport.client.http import HttpChannel
from antiphon.transport.client.line_channel import LineConnection, Reader, Writer
from antiphon.transport.client.memory import MAX_UNREAD_FRAMES, MemoryChannel
from antiphon.transport.client.stdio import StdioChannel
from antiphon.wire.client.dialect import Message
from antiphon.wire.jsonrpc import Frame
from tests.client.fakes import META, MODERN
from tests.support.loop_time import LoopTime

PLACE = "http://server.example/mcp"
EVENTS = {"content-type": "text/event-stream"}


def message(method: str, id: int | None = 1, **params: Any) -> Message:
    head = {"jsonrpc": "2.0", "method": method, **({} if id is None else {"id": id})}
    return Message(json.dumps({**head, "params": params}).encode(), method, id, resumable=True)


class Heard:
    """Receives the messages that are not responses."""

    def __init__(self) -> None:
        self.methods: list[Any] = []

    async def __call__(self, frame: Frame) -> None:
        self.methods.append(frame.method)


class Body(httpx2.AsyncByteStream):
    """A body that ends, or breaks off."""

    def __init__(self, data: bytes, breaks: bool) -> None:
        self._data = data
        self._breaks = breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data
        if self._breaks:
            raise httpx2.ReadError("the line went dead")


def event(number: str = "", /, **fields: Any) -> bytes:
    head = f"id: {number}\nretry: 0\n" if number else "retry: 0\n"
    body = f"data: {json.dumps({'jsonrpc': '2.0', **fields})}\n" if fields else "data: \n"
    return (head + body + "\n").encode()


class Web:
    """A server that returns one response after another, and records the requests."""

    def __init__(self, *answers: httpx2.Response) -> None:
        self.asked: list[httpx2.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        return self._answers.pop(0)

    async def channel(self, receive: Heard, **options: Any) -> HttpChannel:
        """Open a channel to the server."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        channel = HttpChannel(PLACE, http=http, **options)
        await channel.open(receive)
        return channel


def streamed(data: bytes, *, breaks: bool = False) -> httpx2.Response:
    return httpx2.Response(200, headers=EVENTS, stream=Body(data, breaks))


def opened(session: str) -> httpx2.Response:
    """Return the response to a request that opens a session."""
    headers = {"content-type": "application/json", "mcp-session-id": session}
    body = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    return httpx2.Response(200, headers=headers, stream=Body(body, breaks=False))


def refused(status: int) -> httpx2.Response:
    return httpx2.Response(status, stream=Body(b"", breaks=False))


@pytest.mark.parametrize(
    "channel",
    [
        HttpChannel(PLACE),
        MemoryChannel(Server("tests").engine),
        StdioChannel(["no-such-program"]),
    ],
    ids=["http", "memory", "process"],
)
async def test_a_channel_that_is_not_open_raises_and_can_be_closed(channel: Channel) -> None:
    for saying in (channel.request(message("ping")), channel.send(message("hello", None))):
        with pytest.raises(Unreachable, match="The connection to .* is closed"):
            await saying
    await channel.close()
    await channel.close()


# Over HTTP


async def test_a_broken_stream_is_resumed_while_it_brings_events() -> None:
    heard = Heard()
    web = Web(
        streamed(event("1", method="notifications/one"), breaks=True),
        streamed(event("2", method="notifications/two"), breaks=True),
        streamed(event("3", method="notifications/three")),
        streamed(event("4", id=1, result={"done": True})),
    )
    channel = await web.channel(heard, resumes=1)
    frame = await channel.request(message("tools/call"))
    assert frame.result == {"done": True}
    assert heard.methods == ["notifications/one", "notifications/two", "notifications/three"]
    assert [request.headers.get("last-event-id") for request in web.asked] == [None, "1", "2", "3"]
    await channel.close()


async def test_a_stream_without_new_events_is_not_resumed() -> None:
    web = Web(streamed(event("1")), *(streamed(b"", breaks=True) for _ in range(2)))
    channel = await web.channel(Heard(), resumes=2)
    with pytest.raises(Unreachable, match="it could not be resumed"):
        await channel.request(message("tools/call"))
    assert len(web.asked) == 3
    await channel.close()


async def test_a_response_that_is_no_stream_ends_the_resumption() -> None:
    web = Web(streamed(event("1")), httpx2.Response(200, json={}))
    channel = await web.channel(Heard(), resumes=5)
    with pytest.raises(Unreachable, match="it could not be resumed"):
        await channel.request(message("tools/call"))
    assert len(web.asked) == 2
    await channel.close()


async def test_a_get_stream_that_does_not_stay_open_is_opened_again_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard, reopened, lost = Heard(), list[str](), list[str]()
    web = Web(
        opened("s1"),
        streamed(event("1", method="notifications/one") + event("2", id=9, result={})),
        *(streamed(event(), breaks=True) for _ in range(7)),
        refused(410),  # the server does not keep the stream
        streamed(event("1", method="notifications/two")),
        refused(404),
        refused(404),  # nor the session
    )
    channel = await web.channel(heard)
    await channel.request(msgspec.structs.replace(message("initialize"), opens_session=True))
    with caplog.at_level(logging.WARNING, "antiphon.client"):
        await channel.listen(
            {}, on_reopened=lambda: reopened.append("again"), on_session_lost=lambda: lost.append("session")
        )
        await LoopTime.here().advance_until(lambda: lost, 10)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"The stream of messages outside of requests from {PLACE} keeps breaking: ")
    assert warning.endswith("The client tries to open it again.")
    assert heard.methods == ["notifications/one", "notifications/two"], "a response to nothing is dropped"
    assert len(reopened) == 8
    ids = [request.headers.get("last-event-id") for request in web.asked[1:]]
    assert ids == [None, *["2"] * 8, None, "1", None]
    await channel.close()


# In the same process


async def test_messages_after_the_channel_is_closed_are_ignored() -> None:
    server, begun, release = Server("tests"), asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    @server.tool
    async def wait(ctx: Context) -> str:
        begun.set()
        await release.wait()
        for _ in range(2 * MAX_UNREAD_FRAMES):  # it would wait for a reader for ever
            await ctx.info("late")
        ends.append("done")
        return "done"

    channel = MemoryChannel(server.engine)
    await channel.open(Heard())
    meta = {f"{META}protocolVersion": MODERN, f"{META}clientInfo": {"name": "tests", "version": "1"}}
    meta |= {f"{META}clientCapabilities": {}, f"{META}logLevel": "info"}
    asking = asyncio.create_task(channel.request(message("tools/call", name="wait", _meta=meta)))
    await begun.wait()
    closing = asyncio.create_task(channel.close())
    with pytest.raises(Unreachable, match="is closed"):
        await asking
    release.set()
    await closing
    assert ends == ["done"]


# To a child process


async def test_pending_writes_fail_when_the_channel_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "LAST_OUTPUT_SECONDS", 0.05)
    begun = asyncio.Event()

    class Noted(LineConnection):
        """Says when it begins to write."""

        def __init__(self, peer: str, read: Reader, write: Writer, receive: Receiver, **options: Any) -> None:
            async def note(line: bytes) -> None:
                begun.set()
                await write(line)

            super().__init__(peer, read, note, receive, **options)

    monkeypatch.setattr(process, "LineConnection", Noted)
    channel = StdioChannel([sys.executable, "-c", "import signal; signal.pause()"], shutdown_timeout=0.05)
    await channel.open(Heard())
    large = message("tools/call", 1, pad="x" * 5_000_000)
    sending = [asyncio.create_task(channel.send(large)) for _ in range(2)]
    await begun.wait()
    await channel.close()
    results = await asyncio.gather(*sending, return_exceptions=True)
    assert {isinstance(result, Unreachable) for result in results} == {True}
    assert "is closed" in str(results[1])


async def test_a_channel_that_keeps_errors_has_the_last_lines_of_a_dead_process() -> None:
    script = "import sys; sys.stderr.write('x' * 100_000 + '\\nthe reason\\n'); sys.exit(4)"
    channel = StdioChannel([sys.executable, "-c", script], keep_errors=True)
    await channel.open(Heard())
    with pytest.raises(ProcessEnded, match=r"has exited with code 4\.\Z"):
        await channel.request(message("ping"))
    await channel.close()
    assert channel.last_errors.endswith("x\nthe reason\n")
    assert len(channel.last_errors) <= 8192
    assert channel.ending == "by itself"
