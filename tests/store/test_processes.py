"""Several processes on one store: no task is claimed twice, and no change or acknowledged write is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from antiphon.errors import Stale
from antiphon.store.contract import Entry, Store
from antiphon.store.sqlite import SQLiteStore
from tests.support.polling import until
from tests.support.sizes import size

from .child import patient_store
from .processes import all_reports, child, first_report, next_report, send
from .support import task

TASKS = size(800, long=2000)
WORKERS = 8
ROUNDS = size(6, long=12)
pytestmark = pytest.mark.long


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    """The URL of a store that processes can share."""
    if request.param == "sqlite":
        return f"sqlite:///{path}"
    return str(request.getfixturevalue("database").url())


async def test_many_processes_never_claim_the_same_task(url: str) -> None:
    store = patient_store(url)
    await store.open()
    await asyncio.gather(*(store.create(task(f"t{n}"), [("begun", n)]) for n in range(TASKS)))
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(child("work", url)) for _ in range(WORKERS)]
        first = await asyncio.gather(*map(next_report, workers))
        for worker in workers:  # they compete once each of them has claimed tasks
            send(worker, "go on")
        reports = await asyncio.gather(*map(all_reports, workers))
        assert [await worker.wait() for worker in workers] == [0] * WORKERS
    assert first == [["claimed", 5]] * WORKERS
    claims = [claim for claims in reports for claim in claims]
    assert sorted(id for id, _ in claims) == sorted(f"t{n}" for n in range(TASKS))
    assert {token for _, token in claims} == {1}
    assert await store.count("ended") == TASKS
    assert {len(await store.read(f"t{n}")) for n in range(TASKS)} == {2}
    await store.close()


async def test_many_processes_wake_each_task_once_and_survive_kills(url: str) -> None:
    store = patient_store(url)
    await store.open()
    await asyncio.gather(
        *(
            store.create(task(f"t{n}", phase="waiting", wakes=n, tags=("x",) if n % 2 else ()), [])
            for n in range(TASKS)
        )
    )
    async with AsyncExitStack() as stack:
        wakers = [await stack.enter_async_context(child("wake", url)) for _ in range(WORKERS // 2)]
        first, killed = await first_report(wakers)
        killed.kill()
        reports = await asyncio.gather(*map(all_reports, wakers))
        assert [await waker.wait() for waker in wakers if waker is not killed] == [0] * (len(wakers) - 1)
    ids = [id for lines in (*reports, first) for line in lines for id in line]
    assert len(ids) == len(set(ids)) > TASKS // 2
    assert [await store.count(phase) for phase in ("ready", "waiting")] == [TASKS, 0]
    assert {len(await store.read(f"t{n}")) for n in range(TASKS)} == {1}
    assert (await store.list_tagged(["x"])).records == ()
    await store.close()


async def test_a_reader_misses_no_event_of_many_processes(url: str) -> None:
    # A reader that remembers the last number sees each event once, also those of processes that were killed.
    store = patient_store(url)
    await store.open()
    seen: dict[str, list[str]] = {"t0": [], "t1": []}
    last = {"t0": 0, "t1": 0}

    async def read() -> bool:
        """Read the next events, and return whether there were any."""
        count = sum(map(len, seen.values()))
        for topic, after in last.items():
            events = await store.read_events(topic, after=after, limit=1000)
            seen[topic] += [event.id for event in events]
            last[topic] = max([after, *(event.number for event in events)])
        return sum(map(len, seen.values())) > count

    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(child("send_events", url)) for _ in range(4)]
        while min(map(len, seen.values())) < 200:
            await read()
        for sender in senders:
            sender.kill()
        reports = await asyncio.gather(*map(all_reports, senders))
    while await read():  # the senders may be far ahead
        pass
    for topic, ids in seen.items():
        sent = {id for lines in reports for name, id in lines if name == topic}
        assert len(ids) == len(set(ids))
        assert sent <= set(ids)
        assert sent
    await store.close()


async def test_a_watch_fires_for_a_write_in_another_process(url: str) -> None:
    store = patient_store(url)
    await store.open()
    await store.create(task("a"), [])
    await store.create(task("b"), [])
    async with child("echo", url) as other, store.watch("a") as watch, store.watch("b") as bystander:
        assert await next_report(other) == ["ready"]
        for version in range(20):
            send(other, version)
            entries: Sequence[Entry] = ()
            while not entries:  # a watch may also fire for the write before: a poll finds it again
                assert await watch.wait(60)
                entries = await store.read("a", after=version)
            assert len(entries) == 1
            assert await next_report(other) == [version]
        assert not await bystander.wait(0)
    await store.close()


async def test_the_ready_watch_fires_for_a_task_of_another_process(url: str) -> None:
    store = patient_store(url)
    await store.open()
    await store.create(task("a", phase="waiting"), [])
    async with child("echo", url) as other, store.watch_ready() as watch:
        assert await next_report(other) == ["ready"]
        assert not await watch.wait(0)
        send(other, 0)
        assert await watch.wait(60)
        assert len(await store.claim("w", lease=1, limit=1)) == 1
    await store.close()


async def test_a_watch_of_all_tasks_fires_for_a_write_in_another_process(url: str) -> None:
    store = patient_store(url)
    await store.open()
    await store.create(task("a", phase="waiting"), [])
    async with child("echo", url) as other, store.watch_all() as watch:
        assert await next_report(other) == ["ready"]
        assert not await watch.wait(0)
        send(other, 0)
        assert await watch.wait(60)
    await store.close()


async def test_a_watch_fires_even_if_the_poller_is_far_behind(path: Path) -> None:
    store = SQLiteStore(path)
    other = SQLiteStore(path)
    await store.open()
    await other.open()
    await store.create(task("a"), [])
    for version in range(700):
        await other.append("a", [("x", version)], expect=version, phase="ready", head=None)
    async with store.watch("nobody") as watch:
        assert await watch.wait(60)  # so many commits that every task counts as changed
        await other.create(task("nobody"), [])
        assert await watch.wait(60)
    await other.close()
    await store.close()


async def test_acknowledged_writes_of_a_killed_process_are_durable(url: str) -> None:
    store = patient_store(url)
    await store.open()
    for n in range(8):
        await store.create(task(f"t{n}"), [])
    reported: dict[tuple[str, int], str] = {}
    for round in range(ROUNDS):
        async with child("write", url) as writer:
            lines = [await next_report(writer) for _ in range(1 + 37 * round)]
            writer.kill()
            lines += await all_reports(writer)
        reported |= {(id, version): data for id, version, data in lines}
        # Writes that were committed but not reported are there too.
        await append(store, "t0", "mine")
    await store.close()
    again = patient_store(url)
    await again.open()
    for n in range(8):
        entries = await until(partial(whole_log, again, f"t{n}"))
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        stored = {(f"t{n}", entry.number): entry.data for entry in entries}
        acknowledged = {key: data for key, data in reported.items() if key[0] == f"t{n}"}
        assert acknowledged.items() <= stored.items()
        assert acknowledged
    await again.close()


async def whole_log(store: Store, id: str) -> Sequence[Entry]:
    """Return a log, empty if a write of the killed process arrived meanwhile."""
    entries = await store.read(id, limit=1_000_000)
    return entries if await length(store, id) == len(entries) else ()


async def append(store: Store, id: str, data: str) -> None:
    """Append, and retry while a write of the killed process still arrives."""
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
