"""The contract of watches: they fire for every change after their start."""

from __future__ import annotations

import asyncio

from antiphon.store.contract import Store

from .support import START, Clock, task

SOON = 5.0
"""Seconds in which a watch must fire, on a slow machine."""
BRIEFLY = 0.1
"""Seconds to wait for a watch that must not fire."""


async def test_a_watch_fires_for_a_new_entry(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait(SOON))
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await waiting
        assert not await watch.wait(BRIEFLY)


async def test_changes_before_the_wait_are_not_missed(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as watch:
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        await store.append("a", [("x", 2)], expect=1, phase="ready", head=None)
        assert await watch.wait(SOON)
        assert not await watch.wait(BRIEFLY)


async def test_a_watch_fires_when_a_task_is_created_or_deleted(store: Store, clock: Clock) -> None:
    async with store.watch("a") as watch:
        await store.create(task(phase="ended", expires=START + 1000), [])
        assert await watch.wait(SOON)
        clock.forward(1)
        await store.expire()
        assert await watch.wait(SOON)


async def test_only_the_watches_of_the_changed_task_fire(store: Store) -> None:
    await store.create(task("a"), [])
    await store.create(task("b"), [])
    async with store.watch("a") as one, store.watch("a") as two, store.watch("b") as other:
        while await other.wait(BRIEFLY):
            pass
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await asyncio.gather(one.wait(SOON), two.wait(SOON)) == [True, True]
        assert not await other.wait(BRIEFLY)


async def test_ending_one_watch_leaves_the_others(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as stays:
        async with store.watch("a"):
            pass
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await stays.wait(SOON)


async def test_waiting_times_out(store: Store) -> None:
    async with store.watch("a") as watch, store.watch_ready() as ready:
        assert not await watch.wait(0)
        assert not await ready.wait(0.01)


async def test_the_ready_watch_fires_when_a_task_becomes_ready(store: Store) -> None:
    async with store.watch_ready() as watch:
        await store.create(task(), [])
        assert await watch.wait(SOON)
        (claim,) = await store.claim("w", lease=10, limit=1)
        await store.append("a", [("asks", 1)], expect=0, phase="waiting", head=None, token=claim.token)
        assert not await watch.wait(BRIEFLY)
        await store.append("a", [("answer", 1)], expect=1, phase="ready", head=None)
        assert await watch.wait(SOON)


async def test_a_watch_of_all_tasks_fires_when_one_is_created_changed_or_deleted(
    store: Store, clock: Clock
) -> None:
    async with store.watch_all() as watch:
        assert not await watch.wait(BRIEFLY)
        await store.create(task("a"), [])
        await store.create(task("b"), [])
        assert await watch.wait(SOON)
        while await watch.wait(BRIEFLY):
            pass
        await store.append("b", [("x", 1)], expect=0, phase="ended", head=None, expires=START + 1000)
        assert await watch.wait(SOON)
        clock.forward(1)
        while await watch.wait(BRIEFLY):
            pass
        await store.expire()
        assert await watch.wait(SOON)


async def test_a_watch_of_all_tasks_does_not_fire_without_a_change(store: Store) -> None:
    async with store.watch_all() as watch:
        await store.create(task(), [])
        while await watch.wait(BRIEFLY):
            pass
        assert len((await store.list(None)).records) == 1
        assert (await store.tallies()).count() == 1
        assert not await watch.wait(BRIEFLY)


async def test_the_ready_watch_fires_when_a_task_is_released(store: Store) -> None:
    await store.create(task(), [])
    (claim,) = await store.claim("w", lease=10, limit=1)
    async with store.watch_ready() as watch:
        while await watch.wait(BRIEFLY):
            pass
        await store.release("a", claim.token)
        assert await watch.wait(SOON)


async def test_closing_fires_every_watch(store: Store) -> None:
    async with store.watch("a") as watch, store.watch_ready() as ready, store.watch_all() as all_tasks:
        while await ready.wait(BRIEFLY):
            pass
        waiting = asyncio.gather(watch.wait(SOON), ready.wait(SOON), all_tasks.wait(SOON))
        await asyncio.sleep(0)
        await store.close()
        assert await waiting == [True, True, True]
