"""Subscriptions of sessions, as the provider of a resource sees them."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, RequestError, Server
from antiphon.errors import Busy
from antiphon.runtime.execution.call import Call
from antiphon.runtime.providers import Provider
from tests.support import http
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Session

NEWS = "news://all"
SECRET = "a secret that is long enough"


class Recording(Provider):
    """Counts who is subscribed to what."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.shares: Counter[str] = Counter()
        self.is_full = False

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        if self.is_full:
            raise Busy("Too many subscriptions.")
        self.counts[uri] += 1
        self.shares[call.principal.share] += 1

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        self.counts[uri] -= 1
        self.shares[call.principal.share] -= 1


def newspaper(**options: Any) -> tuple[Server, Recording]:
    """Return a server with a resource, and the provider that records subscriptions."""
    server, provider = Server("newspaper", **options), Recording()

    @server.resource(NEWS)
    def news() -> str:
        return "news"

    @server.resource("notes://{day}")
    def notes(day: str) -> str:
        return day

    server.engine.add_provider(provider)
    return server, provider


@pytest.mark.parametrize("is_http", [True, False])
@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_sessions_that_end_take_their_subscriptions_back(is_http: bool, protocol: str) -> None:
    server, provider = newspaper()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.running())
        target: Any = (await stack.enter_async_context(serving(server))).url if is_http else server
        for _ in range(3):
            async with Client(target, protocol=protocol, on_change=lambda change: None) as client:
                await client.subscribe(NEWS)
                await until(lambda: provider.counts[NEWS] == 1)
            await until(lambda: provider.counts[NEWS] == 0)


async def test_a_session_counts_once_and_takes_back_only_its_own_subscription() -> None:
    server, provider = newspaper()
    async with serving(server) as where:
        ada, bob = Session(where.port), Session(where.port)
        for each in (ada, bob):
            await each.open()
        for _ in range(2):
            assert (await ada.ask("resources/subscribe", {"uri": NEWS})).result == {}
        assert provider.counts[NEWS] == 1
        assert (await bob.ask("resources/unsubscribe", {"uri": NEWS})).result == {}
        assert provider.counts[NEWS] == 1
        assert (await ada.ask("resources/unsubscribe", {"uri": NEWS})).result == {}
        assert provider.counts[NEWS] == 0


async def test_a_subscription_that_the_provider_refuses_is_an_error() -> None:
    server, provider = newspaper()
    provider.is_full = True
    async with Client(server, protocol="2025-11-25") as client:
        with pytest.raises(RequestError, match="Too many subscriptions"):
            await client.subscribe(NEWS)
        provider.is_full = False
        await client.subscribe(NEWS)
        assert provider.counts[NEWS] == 1


def moved(session: Session, **where: Any) -> Session:
    """Return the same session, from another address or at another process."""
    other = Session(**({"port": session.port} | where))
    other.headers = dict(session.headers)
    return other


async def test_a_subscription_is_given_back_from_whatever_address_it_is_ended() -> None:
    server, provider = newspaper()
    async with serving(server) as where:
        here = Session(where.port)
        await here.open()
        there = moved(here, source=http.OTHER_LOOPBACK)
        assert (await here.ask("resources/subscribe", {"uri": NEWS})).result == {}
        assert provider.counts[NEWS] == 1
        assert (await there.ask("resources/unsubscribe", {"uri": NEWS})).result == {}
        assert (provider.counts[NEWS], set(provider.shares.values())) == (0, {0})
        assert (await there.ask("resources/subscribe", {"uri": NEWS})).result == {}
        assert (await here.end()).status == 204
        await until(lambda: provider.counts[NEWS] == 0)
        assert set(provider.shares.values()) == {0}


async def test_a_subscription_that_ends_at_another_process_is_given_back_where_it_began(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    one, first = newspaper(store=store, secrets=[SECRET])
    other, second = newspaper(store=store, secrets=[SECRET])
    async with serving(one) as here, serving(other) as there:
        session, neighbour = Session(here.port), Session(there.port)
        for each in (session, neighbour):
            await each.open()
            assert (await each.ask("resources/subscribe", {"uri": NEWS})).result == {}
        elsewhere = moved(session, port=there.port)
        assert (await elsewhere.ask("ping")).result == {}
        async with elsewhere.listening() as stream:
            await stream.receive_head()
            assert (await session.ask("resources/subscribe", {"uri": "notes://last"})).result == {}
            hearing = asyncio.ensure_future(anext(stream.events()))

            def knows_of_it() -> bool:
                other.notify_resource_updated("notes://last")
                return hearing.done()

            await until(knows_of_it)
            assert "notes://last" in str(hearing.result())
            assert (await elsewhere.ask("resources/unsubscribe", {"uri": NEWS})).result == {}
            await until(lambda: first.counts[NEWS] == 0)
            assert second.counts[NEWS] == 1  # that of another session
