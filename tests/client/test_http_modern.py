"""2026-07-28 over HTTP: choosing the version, metadata, headers, caching, subscriptions and cancellation."""

import asyncio
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from antiphon.client import Client
from antiphon.errors import ClientError, HeaderMismatch, MissingCapability, Unreachable, UnsupportedVersion
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from tests.client.fakes import META, MODERN, Answer, Reply, legacy, modern, serving

DONE = {"content": [{"type": "text", "text": "Done."}]}


async def done(reply: Reply) -> None:
    await reply.result(DONE)


def unsupported(supported: list[str], times: int, after: Answer) -> Answer:
    """A server that refuses the version so many times."""
    refusals = iter(range(times))

    async def answer(reply: Reply) -> None:
        if reply.request.method == "server/discover" and next(refusals, None) is not None:
            await reply.error(-32022, 400, {"supported": supported, "requested": MODERN})
        else:
            await after(reply)

    return answer


async def test_a_refused_version_that_is_supported_is_tried_once_more() -> None:
    async with serving(unsupported([MODERN], 1, modern(done))) as fake, Client(fake.url) as client:
        assert client.version == MODERN
    assert fake.methods() == ["server/discover", "server/discover"]


async def test_a_version_that_stays_refused_is_an_error() -> None:
    async with serving(unsupported([MODERN], 9, modern(done))) as fake:
        with pytest.raises(UnsupportedVersion):
            async with Client(fake.url):
                pass
    assert fake.methods() == ["server/discover", "server/discover"]


async def test_the_newest_supported_version_is_chosen() -> None:
    offered = ["2024-11-05", "2025-06-18", "2033-01-01"]
    inner = unsupported(offered, 1, legacy(done, version="2025-06-18"))
    async with serving(inner) as fake, Client(fake.url) as client:
        assert client.version == "2025-06-18"
    assert fake.heard[1].params["protocolVersion"] == "2025-06-18"


async def test_no_version_in_common_is_an_error() -> None:
    async with serving(unsupported(["2033-01-01"], 9, modern(done))) as fake:
        with pytest.raises(UnsupportedVersion):
            async with Client(fake.url):
                pass
    assert fake.methods() == ["server/discover"]


async def test_a_modern_refusal_is_not_taken_for_an_old_server() -> None:
    async def answer(reply: Reply) -> None:
        await reply.error(-32021, 400, {"requiredCapabilities": {"sampling": {}}})

    async with serving(answer) as fake:
        with pytest.raises(MissingCapability):
            async with Client(fake.url):
                pass
    assert fake.methods() == ["server/discover"]


async def test_every_request_says_whose_it_is_in_headers_and_metadata() -> None:
    async with (
        serving(modern(done)) as fake,
        Client(fake.url, name="me", version="7", capabilities={"roots": {}}) as client,
    ):
        await client.call("tööl", a=1, meta={"com.example/x": 1})
    call = fake.heard[1]
    assert call.headers["mcp-protocol-version"] == MODERN
    assert call.headers["mcp-method"] == "tools/call"
    assert call.headers["mcp-name"] == "=?base64?dMO2w7Zs?="
    meta = call.params["_meta"]
    assert meta[META + "protocolVersion"] == MODERN
    assert meta[META + "clientInfo"] == {"name": "me", "version": "7"}
    assert meta[META + "clientCapabilities"] == {"roots": {}, "extensions": {META + "tasks": {}}}
    assert meta["com.example/x"] == 1
    assert META + "logLevel" not in meta
    assert "progressToken" not in meta


async def test_the_log_level_goes_with_every_request() -> None:
    async with serving(modern(done)) as fake, Client(fake.url) as client:
        await client.set_log_level("warning")
        await client.call("tool")
        await client.call("tool", log_level="debug")
    levels = [request.params["_meta"].get(META + "logLevel") for request in fake.heard]
    assert levels == [None, "warning", "debug"]


async def test_a_session_id_that_a_server_sends_anyway_is_ignored() -> None:
    async def answer(reply: Reply) -> None:
        await reply.result(DONE, mcp_session_id="s1")

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        await client.call("tool")
        await client.call("tool")
    assert all("mcp-session-id" not in request.headers for request in fake.heard)
    assert "DELETE" not in fake.methods()


async def test_a_stream_that_breaks_is_not_taken_up_again() -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await reply.raw(b"id: e1\nretry: 1\ndata: \n\n")

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        with pytest.raises(Unreachable, match="before it answered"):
            await client.call("tool")
    assert "GET" not in fake.methods()


async def test_cancelling_closes_the_stream_and_sends_nothing() -> None:
    started = asyncio.Event()

    async def answer(reply: Reply) -> None:
        await reply.events()
        started.set()
        await reply.hang()

    async with serving(modern(answer)) as fake:
        async with Client(fake.url) as client:
            calling = asyncio.create_task(client.call("tool"))
            await started.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await asyncio.wait_for(fake.gone.wait(), 30)
        assert fake.methods() == ["server/discover", "tools/call"]


def listing(ttl: int) -> Answer:
    async def answer(reply: Reply) -> None:
        await reply.result(
            {"tools": [{"name": "t", "inputSchema": {}}], "ttlMs": ttl, "cacheScope": "private"}
        )

    return answer


async def test_a_list_is_kept_for_as_long_as_the_server_says() -> None:
    async with serving(modern(listing(60_000))) as fake, Client(fake.url) as client:
        assert await client.tools() == await client.tools()
    assert fake.methods().count("tools/list") == 1


async def test_a_list_without_a_lifetime_is_asked_for_every_time() -> None:
    async with serving(modern(listing(0))) as fake, Client(fake.url) as client:
        await client.tools()
        await client.tools()
    assert fake.methods().count("tools/list") == 2


async def test_pages_are_put_together() -> None:
    async def answer(reply: Reply) -> None:
        cursor = reply.request.params.get("cursor")
        name, following = {None: ("a", "2"), "2": ("b", "3"), "3": ("c", None)}[cursor]
        more = {} if following is None else {"nextCursor": following}
        await reply.result({"prompts": [{"name": name}], **more})

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        assert [prompt.name for prompt in await client.prompts()] == ["a", "b", "c"]


async def test_a_call_refused_for_its_headers_is_repeated_with_those_that_the_tool_asks_for() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tools/list":
            await reply.result({"tools": [{"name": "t", "inputSchema": schema}]})
        elif reply.request.headers.get("mcp-param-region") == "north":
            await reply.result(DONE)
        else:
            await reply.error(-32020, 400)

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        assert (await client.call("t", region="north")).text == "Done."
        with pytest.raises(HeaderMismatch):
            await client.call("other")
    assert fake.methods()[1:4] == ["tools/call", "tools/list", "tools/call"]


class Token(httpx2.Auth):
    """Answers a challenge, as OAuth does."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        response = yield request
        if response.status_code == 401:
            request.headers["authorization"] = "Bearer secret"
            yield request


async def test_any_auth_plugs_in() -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.headers.get("authorization") == "Bearer secret":
            await modern(done)(reply)
        else:
            await reply.head(401, None, www_authenticate="Bearer", content_length="0")

    async with serving(answer) as fake, Client(fake.url, auth=Token(), headers={"x-mine": "1"}) as client:
        assert (await client.call("tool")).text == "Done."
    assert all(request.headers["x-mine"] == "1" for request in fake.heard)


async def test_a_token_is_sent_with_every_request() -> None:
    headers = {"Authorization": "Bearer other", "X-Mine": "1", "Accept": "text/html"}
    async with serving(modern(done)) as fake, Client(fake.url, auth="secret", headers=headers) as client:
        assert (await client.call("tool")).text == "Done."
    for request in fake.heard:
        assert request.headers["authorization"] == "Bearer secret"
        assert request.headers["x-mine"] == "1"
        assert request.headers["accept"] == "application/json, text/event-stream"


async def test_a_given_http_client_is_used_and_left_open() -> None:
    async with serving(modern(done)) as fake, httpx2.AsyncClient(headers={"x-mine": "1"}) as http:
        async with Client(fake.url, http=http) as client:
            await client.call("tool")
        assert not http.is_closed
    assert fake.heard[-1].headers["x-mine"] == "1"


class Telling:
    """A server that acknowledges subscriptions and tells of changes when it is told to."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.interests: list[dict[str, Any]] = []
        self.say: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def __call__(self, reply: Reply) -> None:
        if reply.request.method == "tools/list":
            await listing(60_000)(reply)
            return
        meta = {META + "subscriptionId": reply.request.id}
        wanted = dict(reply.request.params["notifications"])
        self.interests.append(wanted)
        said = self.say = asyncio.Queue[dict[str, Any]]()
        uris = [uri for uri in wanted.get("resourceSubscriptions", []) if uri != self.refused]
        await reply.events()
        agreed = {"_meta": meta, "notifications": {**wanted, "resourceSubscriptions": uris}}
        await reply.event({"method": "notifications/subscriptions/acknowledged", "params": agreed})
        while True:
            change = await said.get()
            await reply.event({**change, "params": {"_meta": meta, **change.get("params", {})}})


CHANGED = {"method": "notifications/tools/list_changed"}
CAPABLE = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


async def test_a_changed_list_is_told_and_asked_for_again() -> None:
    telling, heard = Telling(), asyncio.Queue[Change]()
    async with (
        serving(modern(telling, **CAPABLE)) as fake,
        Client(fake.url, on_change=heard.put_nowait) as client,
    ):
        await client.tools()
        telling.say.put_nowait(CHANGED)
        assert await asyncio.wait_for(heard.get(), 30) == ListChanged("tools")
        await client.tools()
        assert fake.methods().count("tools/list") == 2
    assert telling.interests == [{"toolsListChanged": True}]


async def test_subscribing_opens_one_stream_for_everything() -> None:
    telling, heard = Telling(), asyncio.Queue[Change]()
    async with (
        serving(modern(telling, **CAPABLE)) as fake,
        Client(fake.url, on_change=heard.put_nowait) as client,
    ):
        await client.subscribe("memo://a")
        await client.subscribe("memo://b")
        await client.unsubscribe("memo://a")
        telling.say.put_nowait({"method": "notifications/resources/updated", "params": {"uri": "memo://b"}})
        assert await asyncio.wait_for(heard.get(), 30) == ResourceUpdated("memo://b")
    assert [wanted.get("resourceSubscriptions") for wanted in telling.interests] == [
        None,
        ["memo://a"],
        ["memo://a", "memo://b"],
        ["memo://b"],
    ]


async def test_a_resource_that_the_server_does_not_tell_of_is_an_error() -> None:
    async with serving(modern(Telling("memo://x"), **CAPABLE)) as fake, Client(fake.url) as client:
        with pytest.raises(ClientError, match="memo://x"):
            await client.subscribe("memo://x")


async def test_listening_iterates_over_changes() -> None:
    telling = Telling()
    async with serving(modern(telling, **CAPABLE)) as fake, Client(fake.url) as client:
        async with client.listen("memo://a") as changes:
            telling.say.put_nowait(CHANGED)
            async for change in changes:
                assert change == ListChanged("tools")
                break
        await asyncio.wait_for(fake.gone.wait(), 30)
    assert telling.interests == [{"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}]
