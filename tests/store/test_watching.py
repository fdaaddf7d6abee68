"""The contract: watchers hear of every change after they began to watch."""

from __future__ import annotations

import asyncio

from antiphon.store.contract import Store

from .support import START, Clock, task

SOON = 5.0
"""Seconds within which something must happen that happens at once."""
NEVER = 0.1
"""Seconds in which nothing happens that never does."""


async def test_a_watcher_hears_of_an_entry(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait(SOON))
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await waiting
        assert not await watch.wait(NEVER)


async def test_what_happened_before_the_wait_is_not_missed(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as watch:
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        await store.append("a", [("x", 2)], expect=1, phase="ready", head=None)
        assert await watch.wait(SOON)
        assert not await watch.wait(NEVER)


async def test_a_watcher_hears_of_a_task_that_begins_or_goes(store: Store, clock: Clock) -> None:
    async with store.watch("a") as watch:
        await store.create(task(expires=START + 1000), [])
        assert await watch.wait(SOON)
        clock.forward(1)
        await store.expire()
        assert await watch.wait(SOON)


async def test_all_watchers_of_a_task_hear_and_those_of_others_do_not(store: Store) -> None:
    await store.create(task("a"), [])
    await store.create(task("b"), [])
    async with store.watch("a") as one, store.watch("a") as two, store.watch("b") as other:
        while await other.wait(NEVER):
            pass
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await asyncio.gather(one.wait(SOON), two.wait(SOON)) == [True, True]
        assert not await other.wait(NEVER)


async def test_a_watcher_that_left_leaves_the_others(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as stays:
        async with store.watch("a"):
            pass
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await stays.wait(SOON)


async def test_waiting_ends_after_its_time(store: Store) -> None:
    async with store.watch("a") as watch, store.watch_ready() as ready:
        assert not await watch.wait(0)
        assert not await ready.wait(0.01)


async def test_workers_hear_of_a_task_that_becomes_ready(store: Store) -> None:
    async with store.watch_ready() as watch:
        await store.create(task(), [])
        assert await watch.wait(SOON)
        (claim,) = await store.claim("w", lease=10, limit=1)
        await store.append("a", [("asks", 1)], expect=0, phase="waiting", head=None, token=claim.token)
        assert not await watch.wait(NEVER)
        await store.append("a", [("answer", 1)], expect=1, phase="ready", head=None)
        assert await watch.wait(SOON)


async def test_workers_hear_of_a_task_that_was_released(store: Store) -> None:
    await store.create(task(), [])
    (claim,) = await store.claim("w", lease=10, limit=1)
    async with store.watch_ready() as watch:
        while await watch.wait(NEVER):
            pass
        await store.release("a", claim.token)
        assert await watch.wait(SOON)


async def test_closing_wakes_those_who_wait(store: Store) -> None:
    async with store.watch("a") as watch, store.watch_ready() as ready:
        while await ready.wait(NEVER):
            pass
        waiting = asyncio.gather(watch.wait(SOON), ready.wait(SOON))
        await asyncio.sleep(0)
        await store.close()
        assert await waiting == [True, True]
