"""The checks of hosts, origins, media types, methods and paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Server
from antiphon.errors import BadOrigin
from antiphon.transport.server.http import guard
from tests.support import http
from tests.support.serving import Address, serving
from tests.support.speakers import JSON, Bare, Session

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("way")]
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(way: str) -> AsyncIterator[Address]:
    async with serving(Server("tests")) as where:
        yield where


async def status(where: Address, headers: Mapping[str, str]) -> int:
    response = await http.request(where.port, "POST", {**JSON, **headers}, PING)
    if response.status != 200:
        assert response.error["code"] == -32600
    return response.status


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "localhost:8000"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:80"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "http:;//evil.example://localhost"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example", "host": "evil.example"}, 403),
    ],
    ids=repr,
)
async def test_a_local_server_trusts_only_local_pages(
    address: Address, headers: dict[str, str], expected: int
) -> None:
    assert await status(address, headers) == expected


@pytest.mark.parametrize(
    ("options", "headers", "expected"),
    [
        ({"hosts": ["api.example"]}, {"host": "api.example"}, 200),
        ({"hosts": ["api.example"]}, {"host": "API.example:8443"}, 200),
        ({"hosts": ["api.example"]}, {"host": "localhost"}, 403),
        ({"hosts": ["*"]}, {"host": "anything.example"}, 200),
        ({"hosts": ["*"]}, {"host": "a.example", "origin": "https://a.example"}, 200),
        ({"hosts": ["*"]}, {"host": "a.example", "origin": "https://b.example"}, 403),
        ({"origins": ["https://app.example/"]}, {"origin": "https://app.example"}, 200),
        ({"origins": ["https://app.example"]}, {"origin": "https://APP.example"}, 200),
        ({"origins": ["https://app.example"]}, {"origin": "http://app.example"}, 403),
        ({"origins": ["https://app.example"]}, {"origin": "http://localhost"}, 403),
        ({"origins": ["*"]}, {"origin": "https://anything.example"}, 200),
    ],
    ids=repr,
)
async def test_configured_hosts_and_origins_are_trusted(
    options: dict[str, Any], headers: dict[str, str], expected: int
) -> None:
    async with serving(Server("tests"), **options) as where:
        assert await status(where, headers) == expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
        ("", 415),
    ],
)
async def test_a_body_must_be_json(address: Address, content_type: str, expected: int) -> None:
    assert await status(address, {"content-type": content_type}) == expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", 200),
        ("text/event-stream", 200),
        ("*/*", 200),
        ("application/*;q=0.5", 200),
        ("text/html, application/json;q=0.1", 200),
        ("text/html", 406),
        ("image/*", 406),
        ("", 406),
    ],
)
async def test_a_client_must_accept_json_or_a_stream(address: Address, accept: str, expected: int) -> None:
    assert await status(address, {"accept": accept}) == expected


async def test_a_client_without_an_accept_header_accepts_everything(address: Address) -> None:
    response = await http.request(address.port, "POST", {"content-type": "application/json"}, PING)
    assert response.status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_other_methods_without_a_session_are_refused(address: Address, method: str) -> None:
    async with http.connect(address.port) as connection:
        await connection.send(method, "/mcp", {"accept": "text/event-stream"})
        response = await connection.receive_head()
    assert response.status == 405
    assert response.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_other_methods_with_a_session_are_refused(address: Address, method: str) -> None:
    session = Session(address.port)
    await session.open()
    response = await http.request(address.port, method, session.headers, PING)
    assert response.status == 405


async def test_a_get_stream_requires_a_client_that_accepts_streams(address: Address) -> None:
    session = Session(address.port)
    await session.open()
    response = await http.request(address.port, "GET", {**session.headers, "accept": "application/json"})
    assert (response.status, response.error["code"]) == (406, -32600)


@pytest.mark.parametrize(
    ("path", "expected"), [("/mcp", 200), ("/mcp/", 200), ("/", 200), ("/other", 404), ("/mcp/x", 404)]
)
async def test_paths(address: Address, path: str, expected: int) -> None:
    assert (await http.request(address.port, "POST", JSON, PING, path)).status == expected


async def test_the_path_is_configurable() -> None:
    async with serving(Server("tests"), path="/a/b") as where:
        assert (await Bare(where.port, path="/a/b").ask("ping")).result == {"resultType": "complete"}
        assert (await http.request(where.port, "POST", JSON, PING, "/mcp")).status == 404


async def test_the_cache_of_checked_requests_has_a_bound() -> None:
    door = guard.Guard({"/mcp"}, None, ["https://app.example"])
    place = {"path": "/mcp", "server": ("127.0.0.1", 80)}
    for number in range(600):
        with pytest.raises(BadOrigin, match=f"site{number}.example"):
            door.check(place, {b"origin": f"https://site{number}.example".encode()})
        door.check(place, {b"origin": b"https://app.example"})
    assert len(door.checked) <= 256


async def test_the_cache_of_accept_headers_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "accepted_headers", {})
    for number in range(600):
        assert guard.accepts(b"text/event-stream;q=0.%d" % number) == (False, True)
        assert guard.accepts(b"application/json;q=0.%d" % number) == (True, False)
    assert len(guard.accepted_headers) <= 256
