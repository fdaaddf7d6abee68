"""Subscriptions of sessions, as the provider of a resource sees them."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from antiphon import Client, RequestError, Server
from antiphon.errors import Busy
from antiphon.model.request import RequestMeta, Subscribe, Unsubscribe
from antiphon.runtime.execution.call import Call
from antiphon.runtime.providers import Provider
from tests.support.polling import until
from tests.support.serving import serving

NEWS = "news://all"


class Recording(Provider):
    """Counts who is subscribed to what."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.is_full = False

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        if self.is_full:
            raise Busy("Too many subscriptions.")
        self.counts[uri] += 1

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        self.counts[uri] -= 1


def newspaper(**options: Any) -> tuple[Server, Recording]:
    """Return a server with a resource, and the provider that records subscriptions."""
    server, provider = Server("newspaper", **options), Recording()

    @server.resource(NEWS)
    def news() -> str:
        return "news"

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
    async with Client(server, protocol="2025-11-25") as ada, Client(server, protocol="2025-11-25") as bob:
        for _ in range(2):
            await ada._connection.ask(Subscribe(uri=NEWS), RequestMeta())
        assert provider.counts[NEWS] == 1
        await bob._connection.ask(Unsubscribe(uri=NEWS), RequestMeta())
        assert provider.counts[NEWS] == 1
        await ada._connection.ask(Unsubscribe(uri=NEWS), RequestMeta())
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
