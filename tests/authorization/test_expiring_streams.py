"""Streams of changes end when the token that opened them expires, and clients open them again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from antiphon import Client, IssuedTokens, Principal, Server
from antiphon.client import subscriptions
from antiphon.model.notification import Change, ResourceUpdated
from antiphon.transport.client import http_response
from tests.support.issuer import RESOURCE, TestIssuer, identify
from tests.support.polling import until
from tests.support.serving import running
from tests.support.speakers import Modern, Session

ADDRESS = "notes://today"


class Door:
    """Lets everybody in as Ada, until `expires_at`."""

    def __init__(self) -> None:
        self.expires_at: float | None = time.time() - 10

    def __call__(self, headers: Mapping[str, str]) -> Principal:
        return Principal("ada", expires_at=self.expires_at)


def notes(door: Door) -> Server:
    server = Server("notes", authenticate=door)
    server.resource(ADDRESS)(lambda: "nothing")
    return server


async def test_a_subscription_ends_with_its_token_and_a_result() -> None:
    async with running(notes(Door())) as where:
        listen = {"notifications": {"resourceSubscriptions": [ADDRESS]}}
        async with asyncio.timeout(30):
            frames = (await Modern(where.port).ask("subscriptions/listen", listen)).frames
        assert frames[0]["method"] == "notifications/subscriptions/acknowledged"
        assert "result" in frames[-1]


async def test_the_stream_of_a_session_ends_with_its_token() -> None:
    async with running(notes(Door())) as where:
        session = Session(where.port)
        await session.open()
        async with session.listening() as connection, asyncio.timeout(30):
            response = await connection.receive()
        assert (response.status, response.is_stream, response.frames) == (200, True, [])
        # The session goes on.
        assert (await session.ask("resources/list")).status == 200


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_client_opens_its_stream_again_with_a_fresh_token(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr(subscriptions, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(http_response, "FIRST_RETRY_SECONDS", 0.01)
    door = Door()
    server = notes(door)
    seen: list[Change] = []
    async with running(server) as where:
        address = f"http://127.0.0.1:{where.port}/mcp"
        async with Client(address, protocol=protocol, on_change=seen.append) as client:
            await client.subscribe(ADDRESS)
            door.expires_at = time.time() + 3600

            def has_come() -> bool:
                server.notify_resource_updated(ADDRESS)
                return any(isinstance(each, ResourceUpdated) and not each.assumed for each in seen)

            await until(has_come)
        await until(lambda: not len(server.engine.changes))


@pytest.mark.parametrize("of_function", [None, 4e9])
async def test_a_principal_expires_with_its_token_and_the_leeway(
    issuer: TestIssuer, of_function: float | None
) -> None:
    expires = 5_000_000_000

    def principal_of(claims: Any) -> Principal:
        return Principal(claims["sub"], expires_at=of_function)

    tokens = IssuedTokens(
        issuer.url, resource=RESOURCE, leeway=7, principal=None if of_function is None else principal_of
    )
    principal = await identify(tokens, issuer.token(exp=expires))
    assert principal.expires_at == (expires + 7 if of_function is None else of_function)
