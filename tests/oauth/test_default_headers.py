"""The default headers of an `http=` client go to the server, and to no issuer that the server names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import httpx2
import pytest
from aiohttp import web

from antiphon import Client, MemoryLogins, OAuth, Unauthorized
from tests.oauth.hostile import Hostile
from tests.support.web import answering


class Recording(Hostile):
    """Records the headers of all requests."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.headers: list[tuple[str, str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        self.headers.append((request.path, str(request.headers)))
        return await super().handle(request)


@pytest.fixture
async def recording() -> AsyncIterator[Recording]:
    async with answering(Recording) as server:
        yield server


@pytest.mark.parametrize("library", ["aiohttp", "httpx2"])
async def test_no_issuer_gets_the_default_headers_of_a_client(recording: Recording, library: str) -> None:
    headers, cookies = {"x-api-key": "s3cret"}, {"crumb": "s3cret"}
    http: aiohttp.ClientSession | httpx2.AsyncClient = (
        aiohttp.ClientSession(headers=headers, cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True))
        if library == "aiohttp"
        else httpx2.AsyncClient(headers=headers, cookies=cookies, params={"key": "s3cret"})
    )
    async with http:
        auth = OAuth(store=MemoryLogins(), open_browser=recording.approve)
        with pytest.raises(Unauthorized):
            async with Client(f"{recording.url}/mcp", auth=auth, http=http):
                pass
    sent = {path for path, found in recording.headers if "s3cret" in found}
    assert sent == {"/mcp"}
    assert "/token" in recording.requests


async def test_no_issuer_gets_the_credentials_of_a_client(recording: Recording) -> None:
    async with httpx2.AsyncClient(auth=("ada", "s3cret")) as http:
        auth = OAuth(store=MemoryLogins(), open_browser=recording.approve)
        with pytest.raises(Unauthorized):
            async with Client(f"{recording.url}/mcp", auth=auth, http=http):
                pass
    assert not [path for path, found in recording.headers if "Basic" in found and path != "/mcp"]
    assert "/token" in recording.requests
