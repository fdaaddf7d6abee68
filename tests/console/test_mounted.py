"""The console beside the MCP endpoint of a server: `server.asgi(console=Console(…))`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from antiphon import BearerTokens, Client, Console, Context, DefinitionError, Principal, Server
from antiphon.console import app
from antiphon.testing import Clock
from antiphon.transport.server.http.asgi import Receive, Scope, Send
from tests.support.polling import until
from tests.support.serving import serving, serving_asgi

TOKENS = {"alices-token": "alice", "bobs-token": "bob"}


def shop(**options: Any) -> Server:
    server = Server("shop", authenticate=BearerTokens(TOKENS), **options)

    @server.tool(task="optional")
    async def pay(amount: int) -> str:
        return f"Paid {amount}."

    return server


@asynccontextmanager
async def person(origin: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser that sends what the page of the console sends."""
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        headers={"origin": origin, "sec-fetch-site": "same-origin"},
    ) as http:
        yield http


async def sign_in(http: aiohttp.ClientSession, console: str, token: str) -> int:
    async with http.post(f"{console}/sign-in", data={"token": token}) as response:
        return response.status


async def test_apps_are_shown_from_a_second_host_name() -> None:
    options = Console(sandbox_url="https://apps.example.com/console")
    async with serving(shop(), hosts=["mcp.example.com"], console=options) as served, person("x") as http:
        console = served.url.removesuffix("/mcp") + "/console"

        async def get(path: str, host: str, **query: str) -> tuple[int, str]:
            async with http.get(console + path, params=query, headers={"host": host}) as response:
                return response.status, response.headers.get("content-security-policy", "")

        status, policy = await get("/", "mcp.example.com")
        assert (status, "; frame-src https://apps.example.com;" in policy) == (401, True)
        status, policy = await get("", "apps.example.com", console="https://mcp.example.com")
        assert (status, "; frame-ancestors https://mcp.example.com;" in policy) == (200, True)
        assert (await get("", "apps.example.com", console="https://evil.example.com"))[0] == 403
        # The second host name has nothing of the console, and other names have nothing at all.
        for path in ("/", "/api/session", "/main.js", "/sign-in"):
            assert (await get(path, "apps.example.com"))[0] == 403
        assert (await get("/", "evil.example.com"))[0] == 421


@pytest.mark.parametrize("url", ["https://mcp.example.com/apps", "apps.example.com", "javascript:x"])
def test_apps_need_an_address_of_their_own(url: str) -> None:
    with pytest.raises(DefinitionError, match="The sandbox needs"):
        shop().asgi(hosts=["mcp.example.com"], console=Console(sandbox_url=url))


def test_apps_are_shown_for_hosts_that_are_named_only() -> None:
    with pytest.raises(DefinitionError, match="Name them: hosts="):
        shop().asgi(console=Console(sandbox_url="https://apps.example.com"))


async def test_people_sign_in_with_the_tokens_of_the_server() -> None:
    async with serving(shop(), console=Console(operators=["alice"])) as served:
        origin = served.url.removesuffix("/mcp")
        console = f"{origin}/console"
        async with person(origin) as http:
            async with http.get(f"{console}/tasks") as response:
                assert response.status == 401
                assert 'name="token"' in await response.text()
            assert await sign_in(http, console, "wrong") == 401
            assert await sign_in(http, console, "") == 401
            assert await sign_in(http, console, "long" * 1000) == 401
            assert await sign_in(http, console, "alices-token") == 200
            [cookie] = list(http.cookie_jar)
            assert "alices-token" not in cookie.value
            assert cookie["path"] == "/console"
            async with http.get(f"{console}/api/session") as response:
                session = await response.json()
            assert session["user"] == {
                "name": "alice",
                "role": "You see and change everybody’s tasks.",
                "isLocal": False,
            }
            assert session["mayOperate"]
            assert [each["name"] for each in session["stores"]] == ["shop"]
            async with http.post(f"{console}/api/sign-in-links") as response:
                assert response.status == 404  # links are for the operator at the terminal
            async with http.post(f"{console}/sign-out") as response:
                assert response.status == 200
            assert not list(http.cookie_jar)
        async with Client(served.url, auth="bobs-token") as client:
            assert (await client.call("pay", {"amount": 3})).text == "Paid 3."


async def test_two_tokens_of_one_person_with_different_scopes_share_no_connection() -> None:
    tokens = {"strong": Principal("bob", scopes=frozenset({"admin"})), "weak": Principal("bob")}
    server = Server("shop", authenticate=BearerTokens(tokens))

    @server.tool(scopes=["admin"])
    async def wipe() -> str:
        return "wiped"

    @server.tool(task="required", scopes=["admin"])
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which vault?", str, key="vault")

    async with serving(server, console=Console()) as served:
        origin = served.url.removesuffix("/mcp")
        console = f"{origin}/console"
        async with Client(served.url, auth="strong") as client:
            task = await client.submit("ask")
            await anext(status async for status in task.updates() if status.questions)
        seen = {}
        for token in ("strong", "weak"):
            async with person(origin) as http:
                assert await sign_in(http, console, token) == 200
                async with http.post(
                    f"{console}/api/workbench/connections", json={"server": "own"}
                ) as opened:
                    connection = (await opened.json())["id"]
                call = {"name": "wipe", "arguments": {}}
                async with http.post(f"{console}/api/servers/own/app/call", json=call) as called:
                    has_wiped = "wiped" in await called.text()
                async with http.get(f"{console}/api/inbox") as inbox:
                    questions = [each["message"] for each in (await inbox.json())["questions"]]
                where = f"{console}/api/inbox/stores/own/question"
                async with http.get(where, params={"task": task.id or "", "key": "vault"}) as found:
                    seen[token] = connection, has_wiped, questions, found.status
        assert seen["strong"][0] != seen["weak"][0]
        assert seen["strong"][1:] == (True, ["Which vault?"], 200)
        assert seen["weak"][1:] == (False, [], 404)


async def test_the_cookie_of_a_page_with_tls_stays_on_tls() -> None:
    async with (
        serving(shop(), console=Console(), hosts=["mcp.example.com"]) as served,
        aiohttp.ClientSession() as http,
    ):
        console = served.url.replace("/mcp", "/console/sign-in")
        for origin, is_secure in {"https://mcp.example.com": True, "http://mcp.example.com": False}.items():
            headers = {"host": "mcp.example.com", "origin": origin}
            form = {"token": "alices-token"}
            async with http.post(console, data=form, headers=headers, allow_redirects=False) as response:
                cookie = response.headers["set-cookie"]
                assert (cookie.startswith("__Secure-"), cookie.endswith("; Secure")) == (is_secure,) * 2


async def test_a_reverse_proxy_may_send_the_token() -> None:
    async with serving(shop(), console=Console()) as served, aiohttp.ClientSession() as http:
        url = served.url.replace("/mcp", "/console/api/session")
        async with http.get(url, headers={"authorization": "Bearer bobs-token"}) as response:
            session = await response.json()
        assert session["user"]["name"] == "bob"
        assert not session["mayOperate"]
        async with http.get(url, headers={"authorization": "Bearer wrong"}) as response:
            assert response.status == 401


async def test_operators_may_be_a_function_and_a_console_may_be_read_only() -> None:
    async def operates(principal: Principal) -> bool:
        return principal.id == "bob"

    async with (
        serving(shop(), console=Console(operators=operates, read_only=True)) as served,
        aiohttp.ClientSession(headers={"authorization": "Bearer bobs-token"}) as http,
        http.get(served.url.replace("/mcp", "/console/api/session")) as response,
    ):
        session = await response.json()
        assert session["mayOperate"]
        assert not session["mayWrite"]


async def test_a_cookie_does_not_outlive_its_token() -> None:
    tokens = {"alices-token": "alice"}

    def authenticate(headers: Mapping[str, str]) -> Principal | None:
        found = tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        return None if found is None else Principal(found)

    async with serving(Server("shop", authenticate=authenticate), console=Console()) as served:
        origin = served.url.removesuffix("/mcp")
        async with person(origin) as http:
            assert await sign_in(http, f"{origin}/console", "alices-token") == 200
            tokens.clear()
            async with http.get(f"{origin}/console/api/session") as response:
                assert response.status == 401


async def test_a_stream_ends_when_the_person_has_to_sign_in_again() -> None:
    def authenticate(headers: Mapping[str, str]) -> Principal:
        return Principal("alice", expires_at=time.time() + 0.3)

    async with (
        serving(Server("shop", authenticate=authenticate), console=Console()) as served,
        aiohttp.ClientSession(headers={"authorization": "Bearer any"}) as http,
        http.get(served.url.replace("/mcp", "/console/api/live")) as response,
    ):
        assert b"ready" in await response.read()


async def test_a_cookie_of_somebody_else_beside_ones_own_signs_nobody_in() -> None:
    async with serving(shop(), console=Console()) as served, aiohttp.ClientSession() as http:
        origin = served.url.removesuffix("/mcp")
        cookies = {}
        for token, name in TOKENS.items():
            async with person(origin) as browser:
                assert await sign_in(browser, f"{origin}/console", token) == 200
                [cookie] = list(browser.cookie_jar)
                cookies[name] = f"{cookie.key}={cookie.value}"
        twice = f"{cookies['alice']}; {cookies['alice']}"
        for sent, status in {twice: 200, "; ".join(cookies.values()): 401}.items():
            async with http.get(f"{origin}/console/api/session", headers={"cookie": sent}) as response:
                assert response.status == status


async def test_streams_end_with_a_revoked_token_and_at_sign_out() -> None:
    tokens = {"alices-token": "alice", "bobs-token": "bob"}
    checks = 0

    def authenticate(headers: Mapping[str, str]) -> Principal | None:
        nonlocal checks
        checks += 1
        found = tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        return None if found is None else Principal(found)

    server = Server("shop", authenticate=authenticate)
    async with serving(server, console=Console()) as served:
        origin = served.url.removesuffix("/mcp")
        console = f"{origin}/console"
        async with person(origin) as alice, person(origin) as bob:
            assert await sign_in(alice, console, "alices-token") == 200
            assert await sign_in(bob, console, "bobs-token") == 200
            async with (
                alice.get(f"{console}/api/live") as alices,
                bob.get(f"{console}/api/live") as bobs,
            ):
                assert b"ready" in await alices.content.readline()
                assert b"ready" in await bobs.content.readline()
                async with bob.post(f"{console}/sign-out") as response:
                    assert response.status == 200
                before = checks
                await bobs.read()
                assert checks == before, "it ends without a check"
                reading = asyncio.create_task(alices.read())
                with Clock() as clock:
                    for _ in range(3):
                        before = checks
                        await clock.advance(app.CHECK_SECONDS)
                        await until(lambda before=before: checks > before)
                    assert not reading.done()
                    del tokens["alices-token"]
                    await clock.advance(app.CHECK_SECONDS)
                    await reading


async def test_a_console_needs_to_know_who_looks() -> None:
    with pytest.raises(DefinitionError, match="pass authenticate="):
        Server("open").asgi(console=Console())
    with pytest.raises(DefinitionError, match="must begin with a slash"):
        Console(path="console")


async def test_the_address_without_a_slash_leads_to_the_page() -> None:
    async with serving(shop(), console=Console(path="/look/here")) as served, aiohttp.ClientSession() as http:
        origin = served.url.removesuffix("/mcp")
        async with http.get(f"{origin}/look/here", allow_redirects=False) as response:
            assert response.status == 308
            assert response.headers["location"] == "here/"
        async with http.get(f"{origin}/look/hereafter") as response:
            assert response.status == 404
            assert "MCP endpoint" in await response.text()


async def test_the_app_may_be_mounted_under_a_prefix() -> None:
    inner = shop().asgi(console=Console())

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith("/apps/shop/")
            scope = {**scope, "root_path": "/apps/shop"}
        await inner(scope, receive, send)

    async with serving_asgi(outer) as served:
        origin = served.url.removesuffix("/mcp")
        console = f"{origin}/apps/shop/console"
        async with person(origin) as http:
            assert await sign_in(http, console, "alices-token") == 200
            async with http.get(f"{console}/api/session") as response:
                assert response.status == 200
            async with http.get(f"{console}/tasks/a/b") as response:
                assert '<base href="../../">' in await response.text()
            async with http.get(f"{console}/main.js") as response:
                assert response.status == 200


async def test_the_hosts_of_the_app_are_those_of_its_console() -> None:
    async with (
        serving(shop(), console=Console(), hosts=["mcp.example.com"]) as served,
        aiohttp.ClientSession(headers={"authorization": "Bearer bobs-token"}) as http,
    ):
        url = served.url.replace("/mcp", "/console/api/session")
        for host, status in {"mcp.example.com": 200, "evil.example": 421}.items():
            async with http.get(url, headers={"host": host}) as response:
                assert response.status == status


async def test_a_local_app_refuses_other_hosts_by_default() -> None:
    async with (
        serving(shop(), console=Console()) as served,
        aiohttp.ClientSession(headers={"authorization": "Bearer bobs-token"}) as http,
        http.get(
            served.url.replace("/mcp", "/console/api/session"), headers={"host": "evil.example"}
        ) as response,
    ):
        assert response.status == 421


async def test_a_shutdown_ends_the_streams_of_pages() -> None:
    async with (
        aiohttp.ClientSession(headers={"authorization": "Bearer bobs-token"}) as http,
        serving(shop(), console=Console()) as served,
    ):
        response = await http.get(served.url.replace("/mcp", "/console/api/live"))
        assert b"ready" in await response.content.readuntil(b"\n\n")
        served.app.begin_shutdown()
        assert await response.read() == b""
        await until(lambda: not served.app.console.streams)


async def test_a_server_that_starts_again_has_its_console_again() -> None:
    app = shop().asgi(console=Console())
    async with aiohttp.ClientSession(headers={"authorization": "Bearer bobs-token"}) as http:
        for _ in range(2):
            async with serving_asgi(app) as served:
                url = served.url.replace("/mcp", "/console/api/live")
                async with http.get(url) as response:
                    assert b"ready" in await response.content.readuntil(b"\n\n")


async def test_people_see_their_own_tasks_with_the_scopes_of_the_tools() -> None:
    tokens: Mapping[str, str | Principal] = {
        "all": Principal("bob", scopes=("pay",)),
        "few": Principal("bob"),
        "other": Principal("eve", scopes=("pay",)),
        "boss": Principal("alice"),
    }
    server = Server("shop", authenticate=BearerTokens(tokens), store="memory:")

    @server.tool(task="required", scopes=["pay"])
    async def pay(amount: int) -> str:
        return f"Paid {amount}."

    async with (
        serving(server, console=Console(operators=["alice"])) as served,
        aiohttp.ClientSession() as http,
    ):
        async with Client(served.url, auth="all") as client:
            handle = await client.submit("pay", {"amount": 3})
            await handle.result()
        tasks = served.url.replace("/mcp", "/console/api/stores/own/tasks")
        for token, is_seen in {"all": True, "few": False, "other": False, "boss": True}.items():
            headers = {"authorization": f"Bearer {token}"}
            async with http.get(tasks, headers=headers) as response:
                assert [task["id"] for task in (await response.json())["tasks"]] == [handle.id] * is_seen
            async with http.get(f"{tasks}/{handle.id}", headers=headers) as response:
                assert response.status == (200 if is_seen else 404)
            async with http.get(f"{tasks}/{handle.id}/log", headers=headers) as response:
                assert response.status == (200 if token == "boss" else 404)
