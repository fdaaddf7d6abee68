"""Servers that are broken, hostile or not there: an error in time and in bounded memory, never a hang."""

import asyncio
import json
from typing import Any

import pytest

from antiphon.client import Client
from antiphon.errors import (
    AntiphonError,
    BadAnswer,
    Forbidden,
    RequestError,
    TimedOut,
    Unauthorized,
    Unreachable,
)
from antiphon.transport.client import http as http_channel
from antiphon.transport.client.http_client import HttpClient
from antiphon.transport.client.http_httpx2 import Httpx2Client
from tests.client.fakes import Answer, Reply, modern, serving

LIMIT = 256 * 1024


@pytest.fixture(autouse=True, params=["aiohttp", "httpx2"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both HTTP libraries."""

    def of_httpx2(*, http: None, auth: None, **options: Any) -> HttpClient:
        return Httpx2Client(http, auth=auth, **options)

    if request.param == "httpx2":
        monkeypatch.setattr(http_channel, "http_client", of_httpx2)


async def call(answer: Answer, timeout: float = 5) -> str:
    """Call a tool of a server that answers so."""
    async with (
        serving(modern(answer)) as fake,
        Client(fake.url, timeout=timeout, max_message=LIMIT) as client,
    ):
        return (await client.call("tool")).text


async def test_an_address_where_nobody_listens_is_unreachable() -> None:
    async with serving(modern(Reply.hang)) as fake:
        pass
    with pytest.raises(Unreachable, match=f"No connection to {fake.url}"):
        async with Client(fake.url):
            pass


async def test_a_server_that_never_answers_times_out_while_connecting() -> None:
    async with serving(Reply.hang) as fake:
        with pytest.raises(TimedOut, match=r"within 1 s"):
            async with Client(fake.url, connect_timeout=1):
                pass
        await asyncio.wait_for(fake.gone.wait(), 30)


async def test_a_call_that_is_never_answered_times_out_and_its_stream_is_closed() -> None:
    async with serving(modern(Reply.hang)) as fake, Client(fake.url, timeout=0.1) as client:
        with pytest.raises(TimedOut):
            await client.call("tool")
        await asyncio.wait_for(fake.gone.wait(), 30)


async def html(reply: Reply) -> None:
    await reply.body(200, "text/html", b"<h1>Hello</h1>")


async def not_json(reply: Reply) -> None:
    await reply.body(200, "application/json", b"{'nope'}")


async def a_list(reply: Reply) -> None:
    await reply.body(200, "application/json", b"[]")


async def accepted(reply: Reply) -> None:
    await reply.head(202, None, content_length="0")


async def wrong_id(reply: Reply) -> None:
    await reply.message({"id": "other", "result": {}})


async def wrong_id_in_a_stream(reply: Reply) -> None:
    await reply.events()
    await reply.event({"id": "other", "result": {}})
    await reply.hang()


async def no_object(reply: Reply) -> None:
    await reply.result([1, 2])


async def not_json_in_a_stream(reply: Reply) -> None:
    await reply.events()
    await reply.raw(b"data: {nope\n\n")
    await reply.hang()


async def compressed(reply: Reply) -> None:
    await reply.body(200, "application/json", b"\x1f\x8b", content_encoding="gzip")


async def elsewhere(reply: Reply) -> None:
    await reply.head(307, None, location="http://elsewhere/mcp", content_length="0")


async def bad_content(reply: Reply) -> None:
    await reply.result({"content": [{"type": "text", "text": 5}]})


async def endless_event(reply: Reply) -> None:
    await reply.events()
    await reply.raw(b"data: ")
    while True:
        await reply.raw(b"x" * 65536)


async def endless_lines_of_one_event(reply: Reply) -> None:
    await reply.events()
    while True:
        await reply.raw(b"data: x\n" * 4096)


async def endless_body(reply: Reply) -> None:
    await reply.head(200, "application/json")
    while True:
        await reply.raw(b" " * 65536)


async def unknown_input(reply: Reply) -> None:
    await reply.result({"resultType": "surprise"})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (html, "text/html, not JSON"),
        (not_json, "not JSON-RPC"),
        (a_list, "not JSON-RPC"),
        (accepted, "sent no response"),
        (wrong_id, "'other'"),
        (wrong_id_in_a_stream, "'other'"),
        (no_object, "not an object"),
        (not_json_in_a_stream, "not JSON-RPC"),
        (compressed, "gzip"),
        (elsewhere, "redirects to http://elsewhere/mcp"),
        (bad_content, "cannot be read"),
        (endless_event, f"more than {LIMIT} bytes"),
        (endless_lines_of_one_event, f"more than {LIMIT} bytes"),
        (endless_body, f"more than {LIMIT} bytes"),
        (unknown_input, "surprise"),
    ],
)
async def test_rubbish_is_a_bad_answer_that_says_what_came(answer: Answer, says: str) -> None:
    with pytest.raises(BadAnswer, match=says):
        await call(answer)


async def cut_body(reply: Reply) -> None:
    await reply.head(200, "application/json", content_length="1000")
    await reply.raw(b'{"jsonrpc"')


async def cut_stream(reply: Reply) -> None:
    await reply.events()
    await reply.event({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})


async def slammed(reply: Reply) -> None:
    pass


async def in_trouble(reply: Reply) -> None:
    await reply.body(502, "text/html", b"<h1>Bad Gateway</h1>")


@pytest.mark.parametrize("answer", [cut_body, cut_stream, slammed, in_trouble])
async def test_a_connection_lost_before_the_answer_is_unreachable(answer: Answer) -> None:
    with pytest.raises(Unreachable):
        await call(answer)


async def test_a_flood_of_notifications_does_not_move_the_deadline() -> None:
    async def flood(reply: Reply) -> None:
        await reply.events()
        while True:
            await reply.event(
                {"method": "notifications/message", "params": {"level": "info", "data": "x" * 999}}
            )

    with pytest.raises(TimedOut):
        await call(flood, timeout=0.2)


async def test_a_server_that_is_no_mcp_server_says_so() -> None:
    async def website(reply: Reply) -> None:
        await reply.body(404, "text/html", b"<h1>Not found</h1>")

    async with serving(website) as fake:
        with pytest.raises(BadAnswer, match=r"status 404.*no MCP server"):
            async with Client(fake.url):
                pass


async def test_who_is_not_let_in_learns_what_to_do() -> None:
    async def closed(reply: Reply) -> None:
        await reply.head(401, None, www_authenticate='Bearer realm="x"', content_length="0")

    async with serving(closed) as fake:
        with pytest.raises(Unauthorized, match="auth=") as refused:
            async with Client(fake.url):
                pass
    assert refused.value.headers == (("www-authenticate", 'Bearer realm="x"'),)
    assert fake.methods() == ["server/discover"]


async def test_who_may_not_do_this_is_told_what_the_server_said() -> None:
    async def forbidden(reply: Reply) -> None:
        await reply.error(-32600, 403)

    with pytest.raises(Forbidden, match="No"):
        await call(forbidden)


async def test_an_error_of_the_servers_keeps_its_code_and_data() -> None:
    async def refuse(reply: Reply) -> None:
        await reply.error(-31999, 400, {"why": "because"})

    with pytest.raises(RequestError) as refused:
        await call(refuse)
    assert (refused.value.code, refused.value.data) == (-31999, {"why": "because"})


@pytest.mark.parametrize("same", [True, False])
async def test_a_list_that_does_not_end_is_given_up(same: bool) -> None:
    pages = iter(range(10**6))

    async def endless(reply: Reply) -> None:
        cursor = "again" if same else str(next(pages))
        await reply.result({"tools": [], "nextCursor": cursor})

    async with serving(modern(endless)) as fake, Client(fake.url, max_pages=20) as client:
        with pytest.raises(BadAnswer, match="does not end"):
            await client.tools()


async def test_content_of_an_unknown_type_stays_as_it_came() -> None:
    hologram = {"type": "hologram", "data": [1, 2]}

    async def answer(reply: Reply) -> None:
        await reply.result({"content": [hologram, {"type": "text", "text": "Hi."}]})

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        result = await client.call("tool")
    assert result.content[0] == hologram
    assert result.text == "Hi."


async def test_one_unreadable_tool_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(reply: Reply) -> None:
        await reply.result(
            {"tools": [{"name": "bad", "inputSchema": 5}, {"name": "good", "inputSchema": {}}]}
        )

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        assert [tool.name for tool in await client.tools()] == ["good"]
    assert "bad" in caplog.text


async def test_a_callback_that_fails_does_not_fail_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(reply: Reply) -> None:
        token = reply.request.params["_meta"]["progressToken"]
        await reply.events()
        await reply.event(
            {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        )
        await reply.event({"id": reply.request.id, "result": {"content": []}})

    def broken(progress: object) -> None:
        raise ZeroDivisionError

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        await client.call("tool", on_progress=broken)
    assert "callback" in caplog.text


async def test_whatever_bytes_a_server_sends_the_client_raises_its_own_errors() -> None:
    bodies = [b"", b"\xff\xfe", b"null", b'{"jsonrpc":"2.0"}', b"[" * 100_000, json.dumps({"id": 1}).encode()]

    async def answer(reply: Reply) -> None:
        await reply.body(200, "application/json", bodies[len(fake.heard) % len(bodies)])

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        for _ in bodies:
            with pytest.raises(AntiphonError):
                await client.call("tool")
