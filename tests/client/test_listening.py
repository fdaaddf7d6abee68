"""A client that listens hears of changes again after an outage, a restart, and a half-open connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Limits, Server
from antiphon.client import Client, connection, subscriptions
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.transport.client import http_response
from tests.support.loop_time import LoopTime
from tests.support.polling import DEADLINE, until
from tests.support.proxy import tunnel
from tests.support.serving import serving

VERSIONS = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "DRAFT-2026-v1"])
NOTE = "notes://a"
LONG = 600.0
"""A deadline that passes only if a test moves the time."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (subscriptions, http_response):
        monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(subscriptions, "LONGEST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("antiphon.transport.client.http.LONGEST_LISTEN_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(connection, "FIRST_RECOVERY_SECONDS", 0.01)
    monkeypatch.setattr(connection, "LONGEST_RECOVERY_SECONDS", 0.05)


def make(secret: str = "a secret of sixteen or more") -> Server:
    server = Server("notes", secrets=[secret], limits=Limits(keep_alive_interval=0.1))

    @server.resource(NOTE)
    def note() -> str:
        return "a note"

    return server


class Reader:
    """Reads the changes that a client listens to."""

    def __init__(self, changes: AsyncIterator[Change]) -> None:
        self._changes = changes

    async def until(self, change: Change, within: float | None = DEADLINE) -> list[Change]:
        """Read up to a change, and return those before it."""
        before: list[Change] = []
        async with asyncio.timeout(within):
            async for found in self._changes:
                if found == change:
                    return before
                before.append(found)
        raise AssertionError("the changes have ended")


async def hears(server: Server, reader: Reader) -> None:
    """Check that a change arrives, and nothing else before it that is not assumed."""
    server.notify_resource_updated(NOTE)
    before = await reader.until(ResourceUpdated(NOTE))
    assert all(change.assumed for change in before)


@VERSIONS
async def test_a_half_open_connection_is_noticed_and_replaced(version: str) -> None:
    server = make()
    options: dict[str, Any] = {"protocol": version, "timeout": LONG, "keep_alive_timeout": LONG}
    async with (
        serving(server) as address,
        tunnel(address.port) as proxy,
        Client(proxy.url, **options) as client,
        client.listen(NOTE) as changes,
    ):
        reader = Reader(aiter(changes))
        await hears(server, reader)
        proxy.freeze()
        server.notify_resource_updated(NOTE)  # nobody hears this
        noticing = asyncio.create_task(reader.until(ResourceUpdated(NOTE, assumed=True), within=None))
        await LoopTime.here().advance_until(noticing.done, LONG / 20)
        assert all(change.assumed for change in await noticing)
        await hears(server, reader)


@pytest.mark.parametrize("secret", ["a secret of sixteen or more", "another secret: sessions are lost"])
@VERSIONS
async def test_a_restarted_server_is_listened_to_again_after_a_long_outage(
    version: str, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "antiphon.client")
    first, second = make(), make(secret)
    async with (
        serving(first) as before_outage,
        serving(second) as after_outage,
        tunnel(before_outage.port) as proxy,
        Client(proxy.url, protocol=version, timeout=60) as client,
        client.listen(NOTE) as changes,
    ):
        reader = Reader(aiter(changes))
        await hears(first, reader)
        proxy.backend = 1  # nobody listens there
        proxy.drop()
        attempts = proxy.accepted
        await until(lambda: proxy.accepted > attempts + 8)
        assert caplog.text.count("keeps breaking") == 1
        proxy.backend = after_outage.port
        missed = await reader.until(ResourceUpdated(NOTE, assumed=True))
        assert ListChanged("resources", assumed=True) in missed
        await hears(second, reader)
