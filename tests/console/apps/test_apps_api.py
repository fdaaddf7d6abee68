"""What an App gets of its server, through the console: its page, its tools, resources; and no more."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, Server
from antiphon.cli.console.serve import server_source
from antiphon.cli.targets import Target
from antiphon.console.apps.api import CALL_BURST, AppsApi
from antiphon.console.live import Live
from antiphon.console.routes import Feature
from antiphon.console.sources import ServerSource, Sources
from antiphon.model.content import BlobContents, TextContents
from tests.console.support import RunningConsole, serving_console

APP = "/api/servers/shop/app"


def create_server() -> Server:
    server = Server("shop")
    server.add_ui("<!doctype html><p>Plain", "ui://shop/plain")
    server.add_ui(
        "<!doctype html><p>Wide",
        "ui://shop/wide",
        csp={"connect_domains": ["https://api.example.com"], "resource_domains": ["https://*.example.net"]},
        permissions=["camera", "clipboard_write"],
        prefers_border=False,
    )

    @server.tool(ui="ui://shop/plain")
    async def show(item: str, ctx: Context) -> dict[str, Any]:
        """For everybody."""
        return {"item": item, "shows_ui": ctx.shows_ui}

    @server.tool(visibility=["app"])
    async def refresh() -> str:
        """For Apps."""
        return "fresh"

    @server.tool(visibility=["model"])
    async def buy() -> str:
        """For the model."""
        return "bought"

    @server.tool
    async def fail() -> str:
        raise ValueError("no")

    @server.resource("notes://today")
    async def today() -> str:
        return "a note"

    return server


@asynccontextmanager
async def console_of(server: Server, **options: Any) -> AsyncIterator[RunningConsole]:
    source = ServerSource("shop", "Shop", "own", lambda user, **chosen: Client(server, **chosen))
    async with serving_console(servers=[source], **{"has_sandbox": True, **options}) as console:
        yield console


@pytest.fixture
async def console() -> AsyncIterator[RunningConsole]:
    async with console_of(create_server()) as console:
        yield console


async def refusal(console: RunningConsole, path: str, **query: Any) -> tuple[int, str]:
    async with console.http.get(console.url + path, params=query) as response:
        return response.status, (await response.json())["message"]


async def test_the_page_of_an_app_and_the_sandbox_for_it(console: RunningConsole) -> None:
    page = await console.get(APP, uri="ui://shop/plain")
    assert page["html"] == "<!doctype html><p>Plain"
    assert (page["settings"], page["wishes"], page["allow"]) == ({}, [], "")
    session = await console.get("/api/session")
    assert page["origin"] == session["sandbox"] != console.url
    async with console.http.get(f"{page['sandbox']}&console={console.url}") as response:
        assert response.status == 200
        policy = response.headers["content-security-policy"]
        assert f"frame-ancestors {console.url};" in policy
        assert "connect-src 'none'" in policy
    async with console.http.get(console.url) as response:
        assert f"frame-src {page['origin']};" in response.headers["content-security-policy"]


async def test_an_app_that_reaches_further_says_so_and_its_policy_allows_that_only(
    console: RunningConsole,
) -> None:
    page = await console.get(APP, uri="ui://shop/wide")
    assert page["wishes"] == [
        "use the camera",
        "write to the clipboard",
        "send data to https://api.example.com",
        "load files from https://*.example.net",
    ]
    assert page["allow"] == "camera *; clipboard-write *"
    assert page["settings"]["prefersBorder"] is False
    async with console.http.get(f"{page['sandbox']}&console={console.url}") as response:
        policy = response.headers["content-security-policy"]
    assert "; connect-src https://api.example.com;" in policy
    assert "; frame-src 'none';" in policy


async def test_the_sandbox_serves_nothing_of_the_console(console: RunningConsole) -> None:
    origin = (await console.get("/api/session"))["sandbox"]
    for path in ("/api/session", "/inbox", "/main.js", "/sign-in"):
        async with console.http.get(origin + path) as response:
            assert response.status == 403
            assert await response.text() == "Only the console shows this page."


async def test_an_app_calls_tools_that_are_visible_to_apps(console: RunningConsole) -> None:
    called = await console.post(f"{APP}/call", {"name": "show", "arguments": {"item": "pen"}})
    assert called["result"]["structuredContent"] == {"item": "pen", "shows_ui": True}
    assert (await console.post(f"{APP}/call", {"name": "refresh"}))["result"]["content"] == [
        {"type": "text", "text": "fresh"}
    ]
    failed = await console.post(f"{APP}/call", {"name": "fail"})
    assert failed["result"]["isError"] is True
    for name in ("buy", "nothing"):
        refused = await console.post(f"{APP}/call", {"name": name}, status=403)
        assert refused["message"] == f"The server has no tool {name!r} that an App may call."
    for body in ({}, {"name": 1}, {"name": "show", "arguments": []}, []):
        await console.post(f"{APP}/call", body, status=400)


async def test_an_app_reads_resources_of_its_server(console: RunningConsole) -> None:
    read = await console.get(f"{APP}/resource", uri="notes://today")
    assert read["result"]["contents"][0]["text"] == "a note"
    missing = await console.get(f"{APP}/resource", uri="notes://none")
    assert missing["error"]["code"] == -32602
    assert (await refusal(console, "/api/servers/other/app/resource", uri="x:y"))[0] == 404


async def test_a_program_that_has_exited_is_started_again(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        """
import os
from antiphon import Server

server = Server("mine")

@server.tool
async def number() -> str:
    return str(os.getpid())

@server.tool
async def end() -> str:
    os._exit(1)
"""
    )
    target = Target.parse(str(file), headers=None, token=None, timeout=None, env=())
    async with serving_console(servers=[server_source("shop", target)], has_sandbox=True) as console:
        first = await console.post(f"{APP}/call", {"name": "number"})
        assert "error" in await console.post(f"{APP}/call", {"name": "end"})
        second = await console.post(f"{APP}/call", {"name": "number"})
        assert first["result"]["content"] != second["result"]["content"]


async def test_an_app_that_asks_too_often_is_refused() -> None:
    now = 0.0

    def features(sources: Sources, live: Live) -> Sequence[Feature]:
        return [AppsApi(sources, live, clock=lambda: now)]

    async with console_of(create_server(), features=features) as console:
        for _ in range(CALL_BURST):
            await console.get(f"{APP}/resource", uri="notes://today")
        assert await refusal(console, f"{APP}/resource", uri="notes://today") == (
            429,
            "The App sends too many requests: 5 a second are allowed.",
        )
        now = 1.0
        await console.get(f"{APP}/resource", uri="notes://today")


async def test_a_read_only_console_reads_for_apps_and_calls_nothing() -> None:
    async with console_of(create_server(), read_only=True) as console:
        await console.get(APP, uri="ui://shop/plain")
        await console.get(f"{APP}/resource", uri="notes://today")
        await console.post(f"{APP}/call", {"name": "refresh"}, status=403)


async def test_without_a_second_origin_apps_are_not_shown_and_the_console_says_why() -> None:
    async with console_of(create_server(), has_sandbox=False) as console:
        assert await refusal(console, APP, uri="ui://shop/plain") == (
            409,
            "Apps are not shown here: the console has no second origin. "
            "Give it one: Console(sandbox_url=…) or antiphon console --sandbox-port.",
        )
        async with console.http.get(console.url) as response:
            assert "frame-src 'none';" in response.headers["content-security-policy"]
        called = await console.post(f"{APP}/call", {"name": "show", "arguments": {"item": "pen"}})
        assert called["result"]["structuredContent"]["shows_ui"] is False


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (TextContents("ui://x/a", "<p>", "text/html"), "is no App"),
        (BlobContents("ui://x/a", "A", "text/html;profile=mcp-app"), "is not HTML in UTF-8"),
        (
            BlobContents("ui://x/a", base64.b64encode(b"\xff").decode(), "text/html;profile=mcp-app"),
            "is not HTML",
        ),
        (TextContents("ui://x/a", "x" * 10_485_761, "text/html;profile=mcp-app"), "is larger than"),
    ],
)
async def test_a_page_that_is_no_app_is_not_shown(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch, contents: Any, said: str
) -> None:
    async def read(*_: Any, **__: Any) -> Any:
        return type("Read", (), {"contents": (contents,)})

    monkeypatch.setattr(Client, "read", read)
    status, message = await refusal(console, APP, uri="ui://x/a")
    assert status == 422
    assert said in message


async def test_a_page_in_base64_and_settings_from_the_list(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = base64.b64encode(b"<p>Blob").decode()

    async def read(*_: Any, **__: Any) -> Any:
        return type("Read", (), {"contents": (BlobContents("x:y", blob, "text/html; profile=mcp-app"),)})

    monkeypatch.setattr(Client, "read", read)
    page = await console.get(APP, uri="ui://shop/wide")
    assert page["html"] == "<p>Blob"
    assert page["settings"]["csp"]["connectDomains"] == ["https://api.example.com"]


async def test_addresses_that_are_no_app(console: RunningConsole) -> None:
    assert (await refusal(console, APP, uri="https://evil.example"))[0] == 400
    assert (await refusal(console, APP))[0] == 400
    assert (await refusal(console, APP, uri="ui://shop/none"))[0] == 502
