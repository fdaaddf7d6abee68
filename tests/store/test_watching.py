"""The contract of watches: they fire for every change after their start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from antiphon.store.contract import Store
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.watchers import Watchers
from tests.support.polling import turns

from .support import START, Clock, is_quiet, task

SOON = 60.0
"""Seconds in which a watch must fire, on a slow machine."""


async def test_a_watch_fires_for_a_new_entry(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as watch:
        waiting = asyncio.create_task(watch.wait(SOON))
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await waiting
        assert await is_quiet(store, watch)


async def test_changes_before_the_wait_are_not_missed(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as watch:
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        await store.append("a", [("x", 2)], expect=1, phase="ready", head=None)
        assert await watch.wait(SOON)
        assert await is_quiet(store, watch)


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
        while await other.wait(0):
            pass
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await asyncio.gather(one.wait(SOON), two.wait(SOON)) == [True, True]
        assert await is_quiet(store, other)


async def test_ending_one_watch_leaves_the_others(store: Store) -> None:
    await store.create(task(), [])
    async with store.watch("a") as stays:
        async with store.watch("a"):
            pass
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await stays.wait(SOON)


@pytest.mark.parametrize("seconds", [0, 0.01])
async def test_waiting_times_out(store: Store, seconds: float) -> None:
    async with store.watch("a") as watch, store.watch_ready() as ready:
        assert not await watch.wait(seconds)
        assert not await ready.wait(seconds)


async def test_the_ready_watch_fires_when_a_task_becomes_ready(store: Store) -> None:
    async with store.watch_ready() as watch:
        await store.create(task(), [])
        assert await watch.wait(SOON)
        (claim,) = await store.claim("w", lease=10, limit=1)
        await store.append("a", [("asks", 1)], expect=0, phase="waiting", head=None, token=claim.token)
        assert await is_quiet(store, watch)
        await store.append("a", [("answer", 1)], expect=1, phase="ready", head=None)
        assert await watch.wait(SOON)


async def test_a_watch_of_all_tasks_fires_when_one_is_created_changed_or_deleted(
    store: Store, clock: Clock
) -> None:
    async with store.watch_all() as watch:
        assert not await watch.wait(0)
        await store.create(task("a"), [])
        await store.create(task("b"), [])
        assert await watch.wait(SOON)
        while await watch.wait(0):
            pass
        await store.append("b", [("x", 1)], expect=0, phase="ended", head=None, expires=START + 1000)
        assert await watch.wait(SOON)
        clock.forward(1)
        while await watch.wait(0):
            pass
        await store.expire()
        assert await watch.wait(SOON)


async def test_a_watch_of_all_tasks_does_not_fire_without_a_change(store: Store) -> None:
    async with store.watch_all() as watch:
        await store.create(task(), [])
        while await watch.wait(0):
            pass
        assert len((await store.list(None)).records) == 1
        assert (await store.tallies()).count() == 1
        assert not await watch.wait(0)


async def test_the_ready_watch_fires_when_a_task_is_released(store: Store) -> None:
    await store.create(task(), [])
    (claim,) = await store.claim("w", lease=10, limit=1)
    async with store.watch_ready() as watch:
        while await watch.wait(0):
            pass
        await store.release("a", claim.token)
        assert await watch.wait(SOON)


async def test_closing_fires_every_watch(store: Store) -> None:
    async with store.watch("a") as watch, store.watch_ready() as ready, store.watch_all() as all_tasks:
        while await ready.wait(0):
            pass
        waiting = asyncio.gather(watch.wait(SOON), ready.wait(SOON), all_tasks.wait(SOON))
        await turns()
        await store.close()
        assert await waiting == [True, True, True]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_process_is_not_told_of_its_own_changes_again(
    request: pytest.FixtureRequest, path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    notify = Watchers.notify

    def noting(watchers: Watchers, ids: Iterable[str], ready: bool) -> None:
        ids = list(ids)
        told.extend(ids)
        notify(watchers, ids, ready)

    monkeypatch.setattr(Watchers, "notify", noting)
    stores: list[Store] = [SQLiteStore(path), SQLiteStore(path)]
    if kind == "postgres":
        url = request.getfixturevalue("database").url()
        stores = [PostgresStore(url, poll_interval=3600), PostgresStore(url, poll_interval=3600)]
    store, other = stores
    await store.open()
    await other.open()
    await store.create(task("a"), [])
    await store.create(task("b"), [])
    async with store.watch("a"), store.watch("b") as later:
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        await other.append("b", [("x", 1)], expect=0, phase="ready", head=None)
        assert await later.wait(SOON)
        assert told.count("a") == 2  # when it was created, and when it changed
    await store.close()
    await other.close()
