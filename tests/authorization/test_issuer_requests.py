"""Requests to an issuer: bounded in time and size, without redirects, and without secrets in messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from antiphon.authorization import issuer_requests
from antiphon.authorization.issuer_requests import IssuerUnavailable, fetch_document

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """Serve one handler at every path, and yield the URL."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/keys?secret=s3cret"
    finally:
        await runner.cleanup()


async def refusal(handler: Handler) -> str:
    async with answering(handler) as url:
        with pytest.raises(IssuerUnavailable) as raised:
            await fetch_document(url, timeout=60)
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


async def test_a_document_is_a_json_object() -> None:
    async def good(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path})

    async with answering(good) as url:
        assert await fetch_document(url, timeout=60) == {"path": "/keys"}


async def test_a_redirect_is_not_followed() -> None:
    visited: list[str] = []

    async def redirect(request: web.Request) -> web.Response:
        visited.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    assert "status 302" in await refusal(redirect)
    assert visited == ["/keys"]


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"\xff", b"[" * 100_000])
async def test_anything_but_a_json_object_is_refused(body: bytes) -> None:
    async def odd(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    assert "did not respond with a JSON object" in await refusal(odd)


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_document_that_is_too_large_is_not_read(
    monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    monkeypatch.setattr(issuer_requests, "MAX_DOCUMENT_BYTES", 10_000)

    async def large(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        response = web.json_response({"x": "x" * 1_000_000})
        if compressed:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    message = await refusal(large)
    assert ("more than 10000 bytes" in message) or (compressed and "JSON object" in message)


async def test_an_issuer_that_does_not_respond_is_not_waited_for() -> None:
    gave_up = asyncio.Event()

    async def never(request: web.Request) -> web.Response:
        await gave_up.wait()
        return web.Response()

    async with answering(never) as url:
        with pytest.raises(IssuerUnavailable, match="did not respond in time"):
            await fetch_document(url, timeout=0.2)
        gave_up.set()


async def test_an_issuer_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(IssuerUnavailable, match="ClientConnectorError"):
        await fetch_document("http://127.0.0.1:1/keys", timeout=60)


@pytest.mark.parametrize(
    "url", ["http://id.example.com/keys", "https://ada:s3cret@id.example.com", "file:///x"]
)
async def test_only_https_and_loopback_addresses_are_asked(url: str) -> None:
    with pytest.raises(IssuerUnavailable, match="the URL") as raised:
        await fetch_document(url, timeout=60)
    assert "s3cret" not in str(raised.value)
