"""Pages of a server's own beside the MCP endpoint."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from antiphon import Client, Context, DefinitionError, Forbidden, HttpRequest, HttpResponse, Limits, Server
from antiphon.errors import StoreUnavailable
from tests.runtime.faulty_store import FaultyStore
from tests.support import http
from tests.support.loop_time import LoopTime
from tests.support.polling import forever
from tests.support.serving import Address, serving

pytestmark = pytest.mark.usefixtures("way")


def make(**options: Any) -> Server:
    server = Server("pages", **options)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.route("/status")
    async def status(request: HttpRequest) -> dict[str, Any]:
        return {"ok": True, "path": request.path, "page": request.query.get("page")}

    @server.route("/hook", methods=["POST", "PUT"])
    async def hook(request: HttpRequest) -> HttpResponse:
        event = await request.json()
        return HttpResponse(f"{request.method} {event['type']}", status=201, headers={"X-Seen": "yes"})

    @server.route("/blocking")
    def blocking(request: HttpRequest) -> str:
        return f"from a thread, for {request.headers['user-agent']}"

    @server.route("/file")
    async def file(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"\x89PNG", media_type="image/png")

    @server.route("/secret")
    async def secret(request: HttpRequest) -> str:
        raise Forbidden("Not for you.")

    @server.route("/broken")
    async def broken(request: HttpRequest) -> str:
        raise ValueError("a detail")

    return server


async def get(
    address: Address, path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> http.Response:
    given = {"user-agent": "test", **headers}
    return await http.request(address.port, method, given, body, path)


async def test_a_page_gets_the_request_and_returns_data_text_or_a_response() -> None:
    async with serving(make()) as address:
        found = await get(address, "/status?page=2")
        assert (found.status, found.headers["content-type"]) == (200, "application/json")
        assert found.frame == {"ok": True, "path": "/status", "page": "2"}
        made = await get(address, "/hook", "POST", b'{"type": "push"}')
        assert (made.status, made.body, made.headers["x-seen"]) == (201, b"POST push", "yes")
        assert (await get(address, "/blocking")).body == b"from a thread, for test"
        picture = await get(address, "/file")
        assert (picture.body, picture.headers["content-type"]) == (b"\x89PNG", "image/png")


async def test_mcp_is_served_beside_the_pages() -> None:
    async with serving(make()) as address, Client(address.url) as client:
        assert (await client.call("add", a=1, b=2)).text == "3"
        assert (await get(address, "/nothing")).status == 404


async def test_other_methods_are_refused_and_head_has_no_body() -> None:
    async with serving(make()) as address:
        refused = await get(address, "/hook")
        assert (refused.status, refused.headers["allow"]) == (405, "POST, PUT")
        async with http.connect(address.port) as connection:
            await connection.send("HEAD", "/blocking", {"user-agent": "test", "connection": "close"})
            head = await connection.receive_head()
            assert (head.status, head.headers["content-length"]) == (200, "23")
            assert await connection.reader.read() == b""


async def test_errors_of_a_page_have_a_status_and_leak_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(make(limits=Limits(max_body_bytes=100))) as address:
        assert (await get(address, "/secret")).status == 403
        broken = await get(address, "/broken")
        assert (broken.status, b"a detail" in broken.body) == (500, False)
        assert "a detail" in caplog.text
        assert (await get(address, "/hook", "POST", b"not json")).status == 400
        assert (await get(address, "/hook", "POST", b'{"type": "' + b"x" * 200 + b'"}')).status == 413


async def test_a_page_that_needs_a_store_that_is_away_says_to_try_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store: Any = FaultyStore()
    server = Server("pages", store=store)

    @server.tool(task="optional")
    async def wait(ctx: Context) -> None:
        await ctx.event("paid", key="42")

    @server.route("/paid", methods=["POST"])
    async def paid(request: HttpRequest) -> str:
        await server.send_event("paid", "42", id="payment-1")
        return "sent"

    async with serving(server) as address:
        store.instead("add_event", StoreUnavailable("a detail"))
        refused = await get(address, "/paid", "POST")
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert refused.body == b"The store of this server is unavailable: try again.\n"
        assert "The page /paid needs the store, and the store is unavailable: a detail" in caplog.text
        assert (await get(address, "/paid", "POST")).body == b"sent"


async def test_a_page_of_another_site_cannot_reach_the_pages() -> None:
    async with serving(make()) as address:
        assert (await get(address, "/status", host="evil.example")).status == 403
        assert (await get(address, "/status", origin="https://evil.example")).status == 403
    async with serving(make(), hosts=["evil.example"]) as address:
        assert (await get(address, "/status", host="evil.example")).status == 200


async def test_pages_are_found_where_the_app_is_mounted() -> None:
    server = make()
    app = Starlette(routes=[Mount("/tools", app=server.asgi())])
    async with serving(app) as address:
        assert (await get(address, "/tools/status")).frame["path"] == "/status"
        async with Client(f"http://127.0.0.1:{address.port}/tools/mcp") as client:
            assert (await client.call("add", a=1, b=2)).text == "3"


async def test_probes_are_optional() -> None:
    async with serving(make()) as address:
        assert (await get(address, "/healthz")).status == 404
    async with serving(make(), probes=True) as address:
        assert (await get(address, "/healthz")).body == b"ok\n"
        assert (await get(address, "/readyz")).frame == {"ready": True}
        assert b"antiphon" in (await get(address, "/metrics")).body
        assert (await get(address, "/status")).status == 200


@pytest.mark.parametrize(
    ("path", "methods"),
    [("status", ["GET"]), ("/a/{id}", ["GET"]), ("/a", "GET"), ("/a", []), ("/status", ["get"])],
)
def test_an_invalid_route_is_refused_at_registration(path: str, methods: Any) -> None:
    with pytest.raises(DefinitionError, match="route"):
        make().route(path, methods=methods)(lambda request: "never")


async def test_a_mounted_app_starts_its_server_for_the_readiness_probe() -> None:
    app = Starlette(routes=[Mount("/tools", app=make().asgi(probes=True))])
    async with serving(app) as address:
        ready = await get(address, "/tools/readyz")
        assert (ready.status, ready.frame) == (200, {"ready": True})


def test_a_route_at_the_path_of_the_endpoint_is_refused() -> None:
    with pytest.raises(DefinitionError, match="hide the MCP endpoint"):
        make().asgi(path="/status")


async def test_probes_answer_whichever_host_they_are_asked_for() -> None:
    async with serving(make(), probes=True, hosts=["mcp.example.com"]) as address:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await get(address, path, host="10.1.2.3:8000")).status == 200
        assert (await get(address, "/status", host="10.1.2.3:8000")).status == 403


async def test_a_page_that_hangs_is_stopped_and_leaves_the_probes_alone() -> None:
    server, begun = make(limits=Limits(call_timeout=600, max_calls=1)), asyncio.Event()

    @server.route("/hang")
    async def hang(request: HttpRequest) -> str:
        begun.set()
        await forever()
        return "never"

    async with serving(server, probes=True) as address, http.connect(address.port) as connection:
        await connection.send("GET", "/hang", {})
        await begun.wait()
        assert (await get(address, "/status")).status == 503
        assert (await get(address, "/healthz")).status == 200
        answer = asyncio.create_task(connection.reader.readuntil(b"\r\n"))
        await LoopTime.here().advance_until(answer.done, 700)
        assert await answer == b"HTTP/1.1 503 Service Unavailable\r\n"
        assert (await get(address, "/status")).status == 200


def test_a_route_added_after_the_app_was_made_cannot_hide_the_endpoint() -> None:
    server = make()
    server.asgi(path="/mcp")
    for path in ("/mcp", "/mcp/"):
        with pytest.raises(DefinitionError, match="hide the MCP endpoint"):
            server.route(path)(lambda request: "never")
