"""What a browser is told about the pages that may call the endpoint from other origins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from antiphon import BearerTokens, Context, DefinitionError, Limits, RateLimited, Server
from tests.hostile.raw import MARKER, PING, read_raw
from tests.support import http
from tests.support.http import Response
from tests.support.polling import until
from tests.support.serving import Address, serving
from tests.support.speakers import JSON, Modern, Session

pytestmark = pytest.mark.usefixtures("way")

APP, OTHER = "https://app.example", "https://other.example"
NAMED = [APP, "http://localhost:6274"]
TOOL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{}}}'


def build(**options: Any) -> Server:
    server = Server("tests", limits=Limits(max_body_bytes=1000, max_calls=1), **options)
    server.may_end = asyncio.Event()  # type: ignore[attr-defined]

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.progress(0.5)
        return "told"

    @server.tool
    async def wait() -> str:
        await server.may_end.wait()  # type: ignore[attr-defined]
        return "waited"

    @server.tool
    async def limited() -> str:
        raise RateLimited("Wait.", retry_after=3)

    @server.tool(scopes=["admin"])
    async def wipe() -> str:
        return "wiped"

    return server


async def ask(
    where: Address,
    headers: Mapping[str, str],
    body: bytes = PING,
    method: str = "POST",
    path: str = "/mcp",
) -> Response:
    return await http.request(where.port, method, {**JSON, **headers}, body, path)


def allowed(response: Response) -> str | None:
    return response.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("origin", NAMED)
async def test_a_preflight_of_a_named_origin_is_answered_without_a_token(origin: str) -> None:
    wanted = (
        "authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-param-region, mcp-session-id"
    )
    async with serving(build(authenticate=BearerTokens({"t": "ann"})), origins=NAMED) as where:
        for method in ("POST", "GET", "DELETE"):
            async with http.connect(where.port) as connection:
                asked = {"origin": origin, "access-control-request-method": method}
                await connection.send("OPTIONS", "/mcp", {**asked, "access-control-request-headers": wanted})
                answer = await connection.receive()
            assert (answer.status, answer.body) == (204, b"")
            assert allowed(answer) == origin
            assert answer.headers["vary"] == "Origin"
            assert method in answer.headers["access-control-allow-methods"].split(", ")
            names = answer.headers["access-control-allow-headers"].lower().split(", ")
            assert "authorization" in names, "the star does not stand for it"
            assert "*" in names
            assert "access-control-allow-credentials" not in answer.headers


async def test_an_origin_that_is_not_named_gets_no_preflight_and_the_refusal_names_the_option() -> None:
    asked = {"access-control-request-method": "POST"}
    async with serving(build(), origins=[APP]) as where:
        for origin in (OTHER, "null", f"{APP}.evil.example", "http://app.example", f"{APP}:444"):
            answer = await ask(where, {**asked, "origin": origin}, b"", "OPTIONS")
            assert (origin, answer.status, allowed(answer)) == (origin, 403, None)
            assert f"--origins {origin} " in answer.error["message"]
            assert answer.headers["vary"] == "Origin"
        evil = await ask(where, {**asked, "origin": APP, "host": "evil.example"}, b"", "OPTIONS")
        assert evil.status == 403
    async with serving(build()) as where:  # a page of this machine is trusted, and a browser needs to hear so
        answer = await ask(where, {**asked, "origin": "http://localhost:6274"}, b"", "OPTIONS")
        assert (answer.status, allowed(answer)) == (403, None)
        assert "--origins http://localhost:6274 " in answer.error["message"]


async def test_a_request_that_is_no_preflight_is_refused_as_any_other_method() -> None:
    async with serving(build(), origins=[APP]) as where:
        for headers in ({"origin": APP}, {"access-control-request-method": "POST"}):
            assert (await ask(where, headers, b"", "OPTIONS")).status == 405


async def test_every_response_to_a_named_origin_can_be_read_also_an_error() -> None:
    server = build(authenticate=BearerTokens({"t": "ann"}))
    async with serving(server, origins=[APP]) as where:
        token = {"origin": APP, "authorization": "Bearer t"}
        session = Session(where.port, headers=token)
        opened = await session.open()
        modern = Modern(where.port, headers=token)
        waiting = asyncio.create_task(modern.call("wait"))
        await until(lambda: where.under_way == 1)
        busy = await modern.call("add", a=1, b=2)
        server.may_end.set()  # type: ignore[attr-defined]
        responses = {
            "initialize": (opened, 200),
            "the call that waited": (await waiting, 200),
            "busy": (busy, 503),
            "a call": (await modern.call("add", a=1, b=2), 200),
            "a call in a session": (await session.call("add", a=1, b=2), 200),
            "an event stream": (await session.call("tell", {"progressToken": 1}), 200),
            "a notification": (await session.tell("notifications/initialized"), 202),
            "no token": (await ask(where, {"origin": APP}), 401),
            "no scope": (await modern.call("wipe"), 403),
            "another host": (await ask(where, {**token, "host": "evil.example"}), 403),
            "another path": (await ask(where, token, path="/other"), 404),
            "another method": (await ask(where, token, method="PUT"), 405),
            "no media type": (await ask(where, {**token, "accept": "text/html"}), 406),
            "too large": (await ask(where, token, b" " * 2000), 413),
            "no JSON": (await ask(where, {**token, "content-type": "text/plain"}), 415),
            "a limit of the rate": (await ask(where, token, TOOL % b"limited"), 429),
            "too many headers": (await ask(where, {**token, **{f"x-{n}": "" for n in range(200)}}), 431),
            "a broken body": (await ask(where, token, b"{"), 400),
            "the end of the session": (await session.end(), 204),
            "a lost session": (await session.end(), 404),
        }
    for name, (response, status) in responses.items():
        assert (name, response.status, allowed(response)) == (name, status, APP)
        exposed = response.headers["access-control-expose-headers"].lower().split(", ")
        assert {"mcp-session-id", "www-authenticate", "retry-after"} <= set(exposed)
        assert response.headers["vary"] == "Origin"
    assert responses["an event stream"][0].is_stream


async def test_the_stream_of_a_session_can_be_read() -> None:
    async with serving(build(), origins=[APP]) as where:
        session = Session(where.port, headers={"origin": APP})
        await session.open()
        async with session.listening() as connection:
            head = await connection.receive_head()
        assert (head.status, head.headers["access-control-allow-origin"]) == (200, APP)


async def test_one_origin_never_gets_the_header_of_another() -> None:
    """Heads and checks are remembered: all that a connection sends is answered for itself."""
    turns = [APP, None, "http://localhost:6274", APP, OTHER, None, APP] * 3
    usual = {**JSON, "host": "127.0.0.1"}
    async with serving(build(), origins=NAMED) as where:

        async def client() -> None:
            async with http.connect(where.port) as connection:
                for origin in turns:
                    headers = usual if origin is None else {**usual, "origin": origin}
                    await connection.send("POST", "/mcp", headers, PING)
                    answer = await connection.receive()
                    assert answer.status == (403 if origin == OTHER else 200)
                    assert allowed(answer) == (None if origin == OTHER else origin)

        await asyncio.gather(*(client() for _ in range(4)))


async def test_pages_that_are_not_named_get_no_header() -> None:
    async with serving(build()) as where:
        for origin in ("http://localhost:3000", f"http://127.0.0.1:{where.port}", APP):
            response = await ask(where, {"origin": origin, "host": f"127.0.0.1:{where.port}"})
            assert response.status == (403 if origin == APP else 200)
            assert not [name for name in response.headers if name.startswith("access-control")]
    async with serving(build(), origins=[APP]) as where:
        assert allowed(await ask(where, {})) is None


async def test_a_star_is_for_pages_of_every_origin_and_without_credentials() -> None:
    async with serving(build(), origins=["*"]) as where:
        for origin in (APP, OTHER, "null"):
            for method in ("POST", "OPTIONS"):
                headers = {"origin": origin, "access-control-request-method": "POST"}
                response = await ask(where, headers, PING if method == "POST" else b"", method)
                assert response.status in (200, 204)
                assert allowed(response) == "*"
                assert "vary" not in response.headers
                assert "access-control-allow-credentials" not in response.headers


async def test_two_origins_get_no_header() -> None:
    request = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {APP}\r\nOrigin: {OTHER}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(PING)}\r\n\r\n"
    ).encode() + PING
    async with serving(build(), origins=[APP]) as where:
        raw = await read_raw(where.port, request, MARKER)
    assert raw.startswith(b"HTTP/1.1 400")
    assert b"access-control" not in raw.lower()


async def test_the_pages_of_an_author_say_themselves_who_may_read_them() -> None:
    server = build()

    @server.route("/status")
    async def status(request: Any) -> dict[str, str]:
        return {"status": "up"}

    async with serving(server, origins=[APP], probes=True) as where:
        for path in ("/status", "/metrics"):
            response = await ask(where, {"origin": APP}, b"", "GET", path)
            assert (response.status, allowed(response)) == (200, None)


@pytest.mark.parametrize("named", [APP, f"{APP}/", f"{APP}:443", "HTTPS://App.Example"])
async def test_an_origin_is_the_same_with_and_without_its_default_port(named: str) -> None:
    async with serving(build(), origins=[named]) as where:
        for origin in (APP, f"{APP}:443"):
            assert allowed(await ask(where, {"origin": origin})) == origin
        for origin in (f"{APP}:80", f"{APP}:4430", "http://app.example:443"):
            assert (await ask(where, {"origin": origin})).status == 403


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (f"{APP}/path", f"name {APP}, which stands for all pages there"),
        (f"{APP}:8443/?a#b", f"name {APP}:8443, which"),
        ("app.example", "name the scheme and the host of the pages, such as https://app.example.com"),
        ("https://*.example", "is not an origin"),
        ("https://ann@app.example", "is not an origin"),
        ("https://", "is not an origin"),
        ("https://app.example:port", "is not an origin"),
        ("", "is not an origin"),
    ],
)
def test_what_is_not_an_origin_is_refused_with_what_to_write(named: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(said)):
        build().asgi(origins=[named])


@pytest.mark.parametrize(
    "named", ["http://[::1]:6274", "vscode-webview://abc", "chrome-extension://abc", "null", "*"]
)
def test_origins_of_every_kind_can_be_named(named: str) -> None:
    cors = build().asgi(origins=[named]).endpoint.guard.cors
    assert cors is not None
    assert cors.names(named)
