"""Servers that refuse work that the program does not wait for, again and again: a person is asked once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from antiphon import Client, MemoryLogins, OAuth
from antiphon.client import subscriptions
from antiphon.client.oauth import background_logins
from antiphon.transport.client import http_response
from tests.oauth.hostile import Hostile
from tests.support.polling import turns, until
from tests.support.web import answering

_ENOUGH = 12
"""How many refusals show that a person is not asked for each of them."""


class Nagging(Hostile):
    """Lets every request of the program through, and refuses what comes by itself."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.question: dict[str, Any] = {"method": "ping"}
        """The request that the server sends again and again on its stream."""
        self.refusals = 0
        self.streams = 0
        self.closes_streams = False
        """Whether streams end at once, and every second one is refused."""
        self.refuses_subscriptions = False

    async def handle(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]
        """Answer a request."""
        if request.path != "/mcp":
            return await super().handle(request)
        if request.method == "GET":
            return await self._stream(request)
        if request.method != "POST":
            return web.Response(status=204)
        message = json.loads(await request.read())
        method = message.get("method")
        if method == "subscriptions/listen":
            return await self._subscription(request, message)
        if method is None or (method == "resources/subscribe" and self.refuses_subscriptions):
            return self._refuse()
        if "id" not in message:
            return web.Response(status=202)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": self._result(method)})

    def _result(self, method: str) -> dict[str, Any]:
        capabilities = {"resources": {"subscribe": True}}
        if method == "initialize":
            info = {"name": "nagging", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        if method == "server/discover":
            return {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "serverInfo": {"name": "nagging", "version": "1"},
            }
        return {}

    def _refuse(self) -> web.Response:
        self.refusals += 1
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    async def _open(self, request: web.Request) -> web.StreamResponse | None:
        """Return a new stream; `None` if this one is refused."""
        self.streams += 1
        if self.closes_streams and self.streams % 2 == 0:
            return None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = await self._open(request)
        if response is None:
            return self._refuse()
        count = 0
        while not self.closes_streams:
            count += 1
            await _send(response, {"id": f"q{count}", **self.question})
            await turns(10)
        return response

    async def _subscription(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await self._open(request)
        if response is None:
            return self._refuse()
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        wanted = message["params"]["notifications"]
        params = {"notifications": wanted, "_meta": meta}
        await _send(response, {"method": "notifications/subscriptions/acknowledged", "params": params})
        return response


async def _send(response: web.StreamResponse, message: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode())


@pytest.fixture
async def nagging(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nagging]:
    monkeypatch.setattr(subscriptions, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(subscriptions, "LONGEST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(http_response, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("antiphon.transport.client.http.LONGEST_LISTEN_RETRY_SECONDS", 0.02)
    async with answering(Nagging) as server:
        yield server


def connect(nagging: Nagging, protocol: str = "2025-11-25") -> Client:
    auth = OAuth(store=MemoryLogins(), open_browser=nagging.approve)
    return Client(
        f"{nagging.url}/mcp", auth=auth, protocol=protocol, elicit=lambda question: {}, on_change=print
    )


async def test_a_reply_to_a_ping_never_asks_a_person(nagging: Nagging) -> None:
    async with connect(nagging):
        await until(lambda: nagging.refusals > _ENOUGH)
    assert not nagging.pages


@pytest.mark.parametrize("is_refused", [False, True])
async def test_answers_to_elicitations_ask_a_person_once(nagging: Nagging, is_refused: bool) -> None:
    nagging.question = {
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    }
    nagging.is_refused = is_refused
    async with connect(nagging):
        await until(lambda: nagging.refusals > _ENOUGH)
    assert len(nagging.pages) == 1


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_streams_that_open_in_between_ask_a_person_once(nagging: Nagging, protocol: str) -> None:
    nagging.closes_streams = True
    async with connect(nagging, protocol) as client:
        await client.subscribe("notes://today")
        await until(lambda: nagging.refusals > _ENOUGH)
    assert len(nagging.pages) == 1


async def test_recoveries_of_a_session_ask_a_person_once(nagging: Nagging) -> None:
    nagging.closes_streams = True
    async with connect(nagging) as client:
        await client.subscribe("notes://today")
        nagging.refuses_subscriptions = True
        before = nagging.streams
        await until(lambda: nagging.streams > before + 3 * _ENOUGH and nagging.refusals > _ENOUGH)
    assert len(nagging.pages) == 1


async def test_a_person_who_logs_in_may_be_asked_again_after_a_pause(
    nagging: Nagging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_logins, "FIRST_PAUSE_SECONDS", 0.01)
    nagging.closes_streams = True
    async with connect(nagging) as client:
        await client.subscribe("notes://today")
        await until(lambda: len(nagging.pages) == 3)
