"""A web page of another origin calls a server from Chromium, in two versions of the protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import BearerTokens, Context, Server
from tests.support.serving import Address, serving, serving_asgi
from tests.support.speakers import CLIENT, JSON, KEY, LEGACY, MODERN

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("way")]

SCRIPT = """async ({ url, headers, frame, method }) => {
    const response = await fetch(url, { method, headers, body: frame && JSON.stringify(frame) });
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    let text = "";
    while (reader) {
        const { done, value } = await reader.read();
        if (done) break;
        text += decoder.decode(value, { stream: true });
        if (method === "GET") { await reader.cancel(); break; }
    }
    const shown = name => response.headers.get(name);
    return {
        status: response.status, text, type: shown("content-type"), session: shown("mcp-session-id"),
        challenge: shown("www-authenticate"),
    };
}"""
"""What a client in a page does: it sends a message, and reads the response as it comes."""


def build() -> Server:
    server = Server("tests", authenticate=BearerTokens({"t": "ann"}))

    @server.tool
    async def tell(region: str, ctx: Context) -> str:
        await ctx.progress(0.5)
        return f"told {region}"

    return server


async def site(scope: Any, receive: Any, send: Any) -> None:
    body = b"<!doctype html><title>A page</title>"
    headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Page:
    """A page in Chromium, and what it asked other origins with OPTIONS."""

    def __init__(self, page: Any, url: str) -> None:
        self._page = page
        self._url = url

    async def send(
        self, frame: dict[str, Any] | None, headers: dict[str, str], method: str = "POST"
    ) -> dict[str, Any]:
        options = {"url": self._url, "headers": headers, "frame": frame, "method": method}
        found: dict[str, Any] = await self._page.evaluate(SCRIPT, options)
        return found


@asynccontextmanager
async def opened(browser: Any, origin: str, where: Address) -> AsyncIterator[Page]:
    context = await browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(origin)
        yield Page(page, where.url)
    finally:
        await context.close()


@asynccontextmanager
async def pages(browser: Any) -> AsyncIterator[tuple[Page, Page]]:
    """A page whose origin the server names, and one of another origin."""
    async with serving_asgi(site, lifespan="off") as home:
        named, other = f"http://127.0.0.1:{home.port}", f"http://localhost:{home.port}"
        async with (
            serving(build(), origins=[named]) as where,
            opened(browser, named, where) as own,
            opened(browser, other, where) as foreign,
        ):
            yield own, foreign


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def messages(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def test_a_page_has_a_session_reads_its_streams_and_ends_it(browser: Any) -> None:
    async with pages(browser) as (page, _):
        headers = {**JSON, "authorization": "Bearer t"}
        hello = request("initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=CLIENT)
        answer = await page.send(hello, headers)
        assert answer["session"], "the page cannot read the id of its session"
        headers |= {"mcp-session-id": answer["session"], "mcp-protocol-version": LEGACY}
        call = request("tools/call", name="tell", arguments={"region": "here"}, _meta={"progressToken": 1})
        told = await page.send(call, headers)
        assert (told["status"], told["type"]) == (200, "text/event-stream")
        progress, result = messages(told["text"])
        assert progress["method"] == "notifications/progress"
        assert result["result"]["content"][0]["text"] == "told here"
        listening = {**headers, "accept": "text/event-stream"}
        stream = await page.send(None, listening, "GET")
        assert (stream["status"], stream["type"]) == (200, "text/event-stream")
        event = next(line[4:] for line in told["text"].splitlines() if line.startswith("id: "))
        resumed = await page.send(None, {**listening, "last-event-id": event}, "GET")
        assert resumed["status"] == 200
        assert (await page.send(None, headers, "DELETE"))["status"] == 204


async def test_a_page_calls_without_a_session_and_reads_the_stream_of_its_call(browser: Any) -> None:
    meta = {
        KEY + "protocolVersion": MODERN,
        KEY + "clientInfo": CLIENT,
        KEY + "clientCapabilities": {},
        "progressToken": 1,
    }
    headers = {
        **JSON,
        "authorization": "Bearer t",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "tell",
        "mcp-param-region": "here",
    }
    call = request("tools/call", name="tell", arguments={"region": "here"}, _meta=meta)
    async with pages(browser) as (page, _):
        for _ in range(2):
            told = await page.send(call, headers)
            assert (told["status"], told["type"]) == (200, "text/event-stream")
            progress, result = messages(told["text"])
            assert progress["method"] == "notifications/progress"
            assert result["result"]["content"][0]["text"] == "told here"
        refused = await page.send(call, {**headers, "authorization": "Bearer x"})
        assert refused["status"] == 401
        assert refused["challenge"].startswith("Bearer"), "the page cannot read where to get a token"
        wrong = await page.send(call, {**headers, "mcp-name": "other"})
        assert (wrong["status"], json.loads(wrong["text"])["error"]["code"]) == (400, -32020)


async def test_a_page_of_another_origin_reads_nothing(browser: Any) -> None:
    from playwright.async_api import Error

    async with pages(browser) as (_, foreign):
        for headers in ({**JSON, "authorization": "Bearer t"}, {"content-type": "text/plain"}):
            with pytest.raises(Error, match="Failed to fetch"):
                await foreign.send(request("ping"), headers)
