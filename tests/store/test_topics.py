"""The contract: what is published is heard by all who hear it then, once, in whatever process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Store

SOON = 5.0
"""Seconds within which something must happen that happens at once."""


async def heard(messages: AsyncIterator[Any], count: int = 1) -> list[Any]:
    """The next things that are heard."""
    async with asyncio.timeout(SOON):
        return [await anext(messages) for _ in range(count)]


async def test_what_is_published_is_heard_in_order(store: Store) -> None:
    async with store.subscribe("news") as messages:
        for number in range(3):
            await store.publish("news", {"n": number, "text": "\0ü"})
        assert await heard(messages, 3) == [{"n": number, "text": "\0ü"} for number in range(3)]


async def test_all_hear_their_own_topic_and_no_other(store: Store) -> None:
    async with store.subscribe("a") as one, store.subscribe("a") as two, store.subscribe("b\0") as other:
        await store.publish("a", 1)
        await store.publish("b\0", 2)
        await store.publish("c", 3)
        await store.publish("a", 4)
        assert await heard(one, 2) == await heard(two, 2) == [1, 4]
        assert await heard(other) == [2]


async def test_what_was_published_before_is_not_heard(store: Store) -> None:
    await store.publish("news", "old")
    async with store.subscribe("news") as messages:
        await store.publish("news", "new")
        assert await heard(messages) == ["new"]


async def test_hearers_do_not_share_what_they_hear(store: Store) -> None:
    async with store.subscribe("news") as messages:
        mine: dict[str, list[int]] = {"list": [1]}
        await store.publish("news", mine)
        mine["list"].append(2)
        assert await heard(messages) == [{"list": [1]}]


async def test_a_large_message_is_heard_whole(store: Store) -> None:
    async with store.subscribe("news") as messages:
        await store.publish("news", "x" * 100_000)
        assert await heard(messages) == ["x" * 100_000]


async def test_a_hearer_that_is_far_behind_misses_the_oldest(store: Store) -> None:
    async with store.subscribe("news") as messages:
        await asyncio.gather(*(store.publish("news", number) for number in range(1500)))
        assert await heard(messages, 1000) == list(range(500, 1500))


async def test_hearing_ends_when_the_store_is_closed(store: Store) -> None:
    async with store.subscribe("news") as messages:
        await store.publish("news", 1)
        await store.close()
        assert [message async for message in messages] == [1]
    with pytest.raises(StoreUnavailable, match="open"):
        await store.publish("news", 2)
    with pytest.raises(StoreUnavailable, match="open"):
        store.subscribe("news")


async def test_what_is_not_json_cannot_be_published(store: Store) -> None:
    with pytest.raises(TypeError):
        await store.publish("news", object())
