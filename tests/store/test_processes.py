"""Several processes on one store: nothing is done twice, nothing is missed, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from antiphon.errors import Stale
from antiphon.store import open_store
from antiphon.store.contract import Store
from antiphon.store.sqlite import SQLiteStore

from .processes import all_heard, child, heard, tell
from .support import task

TASKS = 2000
WORKERS = 8
ROUNDS = 12


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, path: Path) -> str:
    """A store that processes can share."""
    if request.param == "sqlite":
        return f"sqlite:///{path}"
    return str(request.getfixturevalue("database").url())


async def test_many_processes_never_get_the_same_task(place: str) -> None:
    store = open_store(place)
    await store.open()
    await asyncio.gather(*(store.create(task(f"t{n}"), [("begun", n)]) for n in range(TASKS)))
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(child("work", place)) for _ in range(WORKERS)]
        said = await asyncio.gather(*map(all_heard, workers))
        assert [await worker.wait() for worker in workers] == [0] * WORKERS
    claims = [claim for claims in said for claim in claims]
    assert sorted(id for id, _ in claims) == sorted(f"t{n}" for n in range(TASKS))
    assert {token for _, token in claims} == {1}
    assert len([claims for claims in said if claims]) > 1
    assert await store.count("ended") == TASKS
    assert {len(await store.read(f"t{n}")) for n in range(TASKS)} == {2}
    await store.close()


async def test_a_write_is_seen_by_a_watcher_in_another_process(place: str) -> None:
    store = open_store(place)
    await store.open()
    await store.create(task("a"), [])
    await store.create(task("b"), [])
    delays = []
    async with child("echo", place) as other, store.watch("a") as watch, store.watch("b") as bystander:
        assert await heard(other) == ["ready"]
        while await bystander.wait(0.1):
            pass
        for version in range(20):
            tell(other, version)
            assert await watch.wait(5)
            seen = time.monotonic()
            assert len(await store.read("a", after=version)) == 1
            (acknowledged,) = await heard(other)
            delays.append(seen - acknowledged)
        assert not await bystander.wait(0)
    await store.close()
    assert max(delays) < 0.5
    assert statistics.median(delays) < 0.25


async def test_workers_hear_of_tasks_that_another_process_made_ready(place: str) -> None:
    store = open_store(place)
    await store.open()
    await store.create(task("a", phase="waiting"), [])
    async with child("echo", place) as other, store.watch_ready() as watch:
        assert await heard(other) == ["ready"]
        while await watch.wait(0.1):
            pass
        tell(other, 0)
        assert await watch.wait(5)
        assert len(await store.claim("w", lease=1, limit=1)) == 1
    await store.close()


async def test_a_watcher_far_behind_is_told_all_the_same(path: Path) -> None:
    store = SQLiteStore(path)
    other = SQLiteStore(path)
    await store.open()
    await other.open()
    await store.create(task("a"), [])
    for version in range(700):
        await other.append("a", [("x", version)], expect=version, phase="ready", head=None)
    async with store.watch("nobody") as watch:
        assert await watch.wait(5)  # more has happened than can be told apart
        await other.create(task("nobody"), [])
        assert await watch.wait(5)
    await other.close()
    await store.close()


async def test_what_a_killed_process_said_was_done_is_done(place: str) -> None:
    store = open_store(place)
    await store.open()
    for n in range(8):
        await store.create(task(f"t{n}"), [])
    said: dict[tuple[str, int], str] = {}
    for round in range(ROUNDS):
        async with child("write", place) as writer:
            lines = [await heard(writer) for _ in range(1 + 37 * round)]
            writer.kill()
            lines += await all_heard(writer)
        said |= {(id, version): data for id, version, data in lines}
        # What was committed but no longer said is there too, and is the writer's own.
        await append(store, "t0", "mine")
    await store.close()
    again = open_store(place)
    await again.open()
    for n in range(8):
        entries = await again.read(f"t{n}", limit=1_000_000)
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        assert await length(again, f"t{n}") == len(entries)
        kept = {(f"t{n}", entry.number): entry.data for entry in entries}
        acknowledged = {key: data for key, data in said.items() if key[0] == f"t{n}"}
        assert acknowledged.items() <= kept.items()
        assert acknowledged
    await again.close()


async def append(store: Store, id: str, data: str) -> None:
    """Append, however late something comes that a killed process had sent to a store elsewhere."""
    while True:
        try:
            await store.append(id, [("x", data)], expect=await length(store, id), phase="ready", head=None)
        except Stale:
            continue
        return


async def length(store: Store, id: str) -> int:
    record = await store.get(id)
    assert record is not None
    return record.version
