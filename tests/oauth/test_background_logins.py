"""Logins that become necessary while nobody waits for a response: streams of changes, and lost sessions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from antiphon import (
    AuthorizationFailed,
    Client,
    Context,
    MemoryLogins,
    OAuth,
    Principal,
    Server,
    Unauthorized,
)
from antiphon.authorization.protected_resource import ProtectedResource
from antiphon.client import Elicitation, subscriptions
from antiphon.model.notification import Change, ResourceUpdated
from antiphon.transport.client import http_response
from tests.oauth.hostile import Hostile
from tests.support import http
from tests.support.polling import until
from tests.support.process import free_port
from tests.support.serving import running

ADDRESS = "notes://today"
VERSIONS = ["2026-07-28", "2025-11-25"]


class Door:
    """Lets Ada in with one token, which the issuer hands out until `change` is called."""

    def __init__(self, url: str, issuer: Hostile) -> None:
        self.protected_resource = ProtectedResource(url, [issuer.url], ())
        self._issuer = issuer
        self._accepted = "first"
        self._expires_at: float | None = time.time() - 10  # so that every stream ends at once
        self.refusals = 0
        self.session = ""
        """The session of the last request that had one."""
        issuer.token["access_token"] = self._accepted

    def __call__(self, headers: Mapping[str, str]) -> Principal:
        if headers.get("authorization") != f"Bearer {self._accepted}":
            self.refusals += 1
            raise Unauthorized(challenge=self.protected_resource.challenge())
        self.session = headers.get("mcp-session-id", self.session)
        return Principal("ada", expires_at=self._expires_at)

    def change(self) -> None:
        """Accept another token from now on; streams that it opens do not end."""
        self._accepted = self._issuer.token["access_token"] = "second"
        self._expires_at = None


class Scene:
    """A server behind a door, a client of it, and the changes that the client sees."""

    def __init__(self, server: Server, door: Door, url: str) -> None:
        self.server = server
        self.door = door
        self.url = url
        self.store = MemoryLogins()
        self.seen: list[Change] = []

    async def until_a_change_comes(self) -> None:
        """Change a resource until the client sees it."""

        def has_come() -> bool:
            self.server.notify_resource_updated(ADDRESS)
            return any(isinstance(each, ResourceUpdated) and not each.assumed for each in self.seen)

        await until(has_come)


@pytest.fixture
async def scene(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(subscriptions, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(subscriptions, "LONGEST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(http_response, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("antiphon.transport.client.http.LONGEST_LISTEN_RETRY_SECONDS", 0.02)
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    door = Door(url, hostile)
    server = Server("notes", authenticate=door)
    server.resource(ADDRESS)(lambda: "nothing")
    async with running(server, port=port):
        yield Scene(server, door, url)


@asynccontextmanager
async def listening(scene: Scene, hostile: Hostile, protocol: str) -> AsyncIterator[Client]:
    """Yield a client that has logged in and subscribed."""
    auth = OAuth(store=scene.store, open_browser=hostile.approve)
    async with Client(scene.url, auth=auth, protocol=protocol, on_change=scene.seen.append) as client:
        await client.subscribe(ADDRESS)
        assert len(hostile.pages) == 1
        yield client


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_stream_whose_token_is_refused_asks_the_person_to_log_in(
    scene: Scene, hostile: Hostile, protocol: str
) -> None:
    async with listening(scene, hostile, protocol):
        scene.door.change()
        await scene.until_a_change_comes()
    assert len(hostile.pages) == 2


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_person_who_is_away_is_asked_once_and_the_next_call_asks_again(
    scene: Scene, hostile: Hostile, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(scene, hostile, protocol) as client:
        hostile.is_refused = True
        scene.door.change()
        await until(lambda: scene.door.refusals > 10)
        assert len(hostile.pages) == 2
        assert caplog.text.count("until somebody logs in") == 1
        with pytest.raises(AuthorizationFailed, match="access_denied"):
            await client.resources()
        hostile.is_refused = False
        await client.resources()
        await scene.until_a_change_comes()
        assert len(hostile.pages) == 4


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_a_login_of_another_process_opens_the_stream_again(
    scene: Scene, hostile: Hostile, protocol: str
) -> None:
    async with listening(scene, hostile, protocol):
        hostile.is_refused = True
        scene.door.change()
        await until(lambda: len(hostile.pages) == 2)
        (login,) = scene.store.all()
        scene.store.save(msgspec.structs.replace(login, access_token="second"))
        await scene.until_a_change_comes()
    assert len(hostile.pages) == 2


async def test_an_answer_whose_token_is_refused_reaches_the_tool_after_a_login(
    scene: Scene, hostile: Hostile
) -> None:
    @scene.server.tool
    async def greet(ctx: Context) -> str:
        return f"Hello, {await ctx.elicit('Who?', str)}!"

    async def answer(question: Elicitation) -> dict[str, str]:
        scene.door.change()  # the person has thought for longer than the token was valid
        return {"value": "Grace"}

    auth = OAuth(store=scene.store, open_browser=hostile.approve)
    async with Client(scene.url, auth=auth, protocol="2025-11-25", elicit=answer) as client:
        assert (await client.call("greet")).text == "Hello, Grace!"
    assert len(hostile.pages) == 2


async def test_a_server_that_has_lost_the_session_and_refuses_the_token_gets_both_anew(
    scene: Scene, hostile: Hostile
) -> None:
    auth = OAuth(store=scene.store, open_browser=hostile.approve)
    async with Client(scene.url, auth=auth, protocol="2025-11-25") as client:
        await client.ping()
        headers = {"authorization": "Bearer first", "mcp-session-id": scene.door.session}
        port = int(scene.url.split(":")[2].partition("/")[0])
        assert (await http.request(port, "DELETE", headers, path="/mcp")).status == 204
        scene.door.change()
        assert [resource.uri for resource in await client.resources()] == [ADDRESS]
    assert len(hostile.pages) == 2
