"""The contract of topics: a message reaches every current subscriber, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Store

ARRIVAL_TIMEOUT_SECONDS = 60.0
"""How long a message may take on a slow machine."""


async def receive(messages: AsyncIterator[Any], count: int = 1) -> list[Any]:
    """Return the next messages."""
    async with asyncio.timeout(ARRIVAL_TIMEOUT_SECONDS):
        return [await anext(messages) for _ in range(count)]


async def test_messages_arrive_in_order(store: Store) -> None:
    async with store.subscribe("news") as messages:
        for number in range(3):
            await store.publish("news", {"n": number, "text": "\0ü"})
        assert await receive(messages, 3) == [{"n": number, "text": "\0ü"} for number in range(3)]


async def test_every_subscriber_gets_the_messages_of_its_topic_only(store: Store) -> None:
    async with store.subscribe("a") as one, store.subscribe("a") as two, store.subscribe("b\0") as other:
        await store.publish("a", 1)
        await store.publish("b\0", 2)
        await store.publish("c", 3)
        await store.publish("a", 4)
        assert await receive(one, 2) == await receive(two, 2) == [1, 4]
        assert await receive(other) == [2]


async def test_earlier_messages_are_not_delivered(store: Store) -> None:
    await store.publish("news", "old")
    async with store.subscribe("news") as messages:
        await store.publish("news", "new")
        assert await receive(messages) == ["new"]


async def test_messages_do_not_change_with_the_publishers_objects(store: Store) -> None:
    async with store.subscribe("news") as messages:
        mine: dict[str, list[int]] = {"list": [1]}
        await store.publish("news", mine)
        mine["list"].append(2)
        assert await receive(messages) == [{"list": [1]}]


async def test_a_large_message_arrives_whole(store: Store) -> None:
    async with store.subscribe("news") as messages:
        await store.publish("news", "x" * 100_000)
        assert await receive(messages) == ["x" * 100_000]


async def test_a_subscriber_that_is_far_behind_loses_the_oldest_messages(store: Store) -> None:
    async with store.subscribe("news") as messages:
        await asyncio.gather(*(store.publish("news", number) for number in range(1500)))
        assert await receive(messages, 1000) == list(range(500, 1500))


async def test_subscriptions_end_when_the_store_is_closed(store: Store) -> None:
    async with store.subscribe("news") as messages:
        await store.publish("news", 1)
        await store.close()
        assert [message async for message in messages] == [1]
    with pytest.raises(StoreUnavailable, match="open"):
        await store.publish("news", 2)
    with pytest.raises(StoreUnavailable, match="open"):
        store.subscribe("news")


async def test_data_that_is_not_json_cannot_be_published(store: Store) -> None:
    with pytest.raises(TypeError):
        await store.publish("news", object())
