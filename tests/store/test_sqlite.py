"""The SQLite store beyond the contract: shared commits, bounded reads, idle threads."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.errors import Stale, StoreUnavailable
from antiphon.store.sqlite import SQLiteStore, batch_thread, database, statements
from antiphon.store.sqlite.batch_thread import BatchResult, BatchThread
from tests.support.polling import turns

from .support import START, Clock, task


def fetch_number(path: Path, query: str) -> int:
    """Return one number, read directly from the file."""
    file = sqlite3.connect(path)
    try:
        return int(file.execute(query).fetchone()[0])
    finally:
        file.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock, like another process that writes."""
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        file.execute("ROLLBACK")
        file.close()


async def test_concurrent_appends_share_commits(sqlite: SQLiteStore) -> None:
    await asyncio.gather(*(sqlite.create(task(f"t{n}"), []) for n in range(200)))
    before = sqlite.commits
    for version in range(5):
        await asyncio.gather(
            *(
                sqlite.append(f"t{n}", [("x", n)], expect=version, phase="ready", head=None)
                for n in range(200)
            )
        )
    assert sqlite.commits - before <= 25
    assert await sqlite.count("ready") == 200


async def test_operations_of_successive_loop_turns_form_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over: list[int] = []

    class Queue(SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            if item is not None:
                handed_over.append(len(item))
            super().put(item)

    monkeypatch.setattr(batch_thread, "MAX_GATHER_SECONDS", 1e6)  # longer than a slow machine takes
    monkeypatch.setattr(batch_thread, "SimpleQueue", Queue)

    def run(work: list[int]) -> BatchResult:
        return BatchResult([(number, None) for number in work])

    thread: BatchThread[int] = BatchThread("test", run, max_batch=100, max_queued=100)
    futures = []
    for number in range(5):
        futures.append(thread.submit(number))
        await turns()
    assert await asyncio.gather(*futures) == [0, 1, 2, 3, 4]
    assert handed_over == [5]
    await thread.close()


async def test_callers_stay_together_although_some_start_while_a_batch_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_thread, "MAX_GATHER_SECONDS", 1e6)
    batches: list[list[str]] = []
    is_under_way, go_on = threading.Event(), threading.Event()

    def run(work: list[str]) -> BatchResult:
        batches.append(work)
        is_under_way.set()
        go_on.wait(60)
        return BatchResult([(each, None) for each in work])

    async def submit_again(done: asyncio.Future[str]) -> None:
        await thread.submit(f"{await done}, again")

    thread: BatchThread[str] = BatchThread("test", run, max_batch=100, max_queued=100)
    early = asyncio.create_task(submit_again(thread.submit("early")))
    assert await asyncio.to_thread(is_under_way.wait, 60)
    late = thread.submit("late")
    await turns(20)
    go_on.set()
    await asyncio.gather(early, late)
    assert batches == [["early"], ["late", "early, again"]]
    await thread.close()


async def test_a_steady_stream_of_operations_does_not_delay_the_first_one(sqlite: SQLiteStore) -> None:
    first = asyncio.create_task(sqlite.create(task("first"), []))
    operations = []
    async with asyncio.timeout(60):
        while not first.done():
            operations.append(asyncio.create_task(sqlite.use_once(f"k{len(operations)}", until=START)))
            await turns()
    await asyncio.gather(*operations)
    assert await sqlite.get("first") is not None


async def test_operations_without_changes_commit_nothing(sqlite: SQLiteStore) -> None:
    await sqlite.create(task(phase="waiting"), [])
    before = sqlite.commits
    assert await sqlite.claim("w", lease=1, limit=10) == []
    assert list(await sqlite.expire()) == []
    await sqlite.release("a", 1)
    with pytest.raises(Stale):
        await sqlite.append("a", [("x", 1)], expect=5, phase="ready", head=None)
    assert sqlite.commits == before


async def test_a_read_sees_every_acknowledged_write(sqlite: SQLiteStore) -> None:
    await sqlite.create(task(), [])
    for version in range(100):
        await sqlite.append("a", [("x", version)], expect=version, phase="ready", head=version)
        record = await sqlite.get("a")
        assert record is not None
        assert record.version == version + 1


async def test_many_records_requested_together_are_all_found(sqlite: SQLiteStore) -> None:
    await asyncio.gather(*(sqlite.create(task(f"t{n}"), []) for n in range(700)))
    records = await asyncio.gather(*(sqlite.get(f"t{n}") for n in range(701)))
    assert [record.id if record else None for record in records] == [*(f"t{n}" for n in range(700)), None]


async def test_a_task_can_be_created_and_appended_to_in_one_commit(sqlite: SQLiteStore) -> None:
    before = sqlite.commits
    await asyncio.gather(
        sqlite.create(task(), [("begun", 1)]),
        sqlite.append("a", [("x", 2)], expect=1, phase="ready", head={"n": 2}),
    )
    (claim,) = await sqlite.claim("w", lease=1, limit=1)
    assert claim.record == task(version=2, head={"n": 2})
    assert [entry.data for entry in await sqlite.read("a")] == [1, 2]
    assert sqlite.commits - before == 2


async def test_a_log_larger_than_sqlites_text_limit_is_read_in_parts(sqlite: SQLiteStore) -> None:
    await sqlite.create(task(), [("x", "y" * 1000) for _ in range(50)])
    await sqlite.get("a")
    threads = sqlite.opened()
    assert threads.reader.connection is not None
    threads.reader.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)
    assert [entry.number for entry in await sqlite.read("a", limit=40)] == list(range(1, 41))


async def test_an_entry_larger_than_sqlites_text_limit_is_an_error(sqlite: SQLiteStore) -> None:
    await sqlite.create(task(), [("x", "y" * 100), ("x", "y" * 9000), ("x", "y" * 100)])
    await sqlite.get("a")
    threads = sqlite.opened()
    assert threads.reader.connection is not None
    threads.reader.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await sqlite.read("a")
    assert len(await sqlite.read("a")) == 3  # a new connection, without the limit


async def test_expired_keys_are_deleted(sqlite: SQLiteStore, clock: Clock, path: Path) -> None:
    for n in range(100):
        await sqlite.use_once(f"k{n}", until=START + 10 * n)
        clock.forward(0.01)
    assert fetch_number(path, "SELECT count(*) FROM used") <= 2


async def test_the_table_of_commits_is_bounded(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [])
    for version in range(700):
        await sqlite.append("a", [], expect=0, phase="ready", head=version)
    assert fetch_number(path, "SELECT count(*) FROM commits") <= 512 + 64


async def test_a_long_log_is_deleted_whole(sqlite: SQLiteStore, clock: Clock, path: Path) -> None:
    for id in "ab":
        await sqlite.create(task(id, phase="ended", expires=START + 1), [("x", n) for n in range(6000)])
    clock.forward(1)
    assert len(await sqlite.expire()) == 2
    assert fetch_number(path, "SELECT count(*) FROM entries") == 0


async def test_a_write_waits_for_the_write_lock_of_another_process(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [])
    with locked(path):
        appending = asyncio.create_task(sqlite.append("a", [("x", 1)], expect=0, phase="ready", head=None))
        assert await sqlite.get("a") == task()  # reads continue meanwhile
        assert not appending.done()
    assert await appending == 1


async def test_waiting_for_the_write_lock_times_out(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=0.05)
    await store.open()
    with locked(path), pytest.raises(StoreUnavailable, match="Another process"):
        await store.create(task(), [])
    await store.create(task(), [])
    await store.close()


async def test_time_in_which_the_machine_stood_still_does_not_count_as_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(path, busy_timeout=2.0)
    await store.open()
    ahead, looked = 0.0, threading.Event()

    def clock() -> float:
        looked.set()
        return ahead

    monkeypatch.setattr(database, "time", SimpleNamespace(**vars(time) | {"monotonic": clock}))
    with locked(path):
        creating = asyncio.create_task(store.create(task(), []))
        for _ in range(3):
            looked.clear()
            ahead += 60
            assert await asyncio.to_thread(looked.wait, 60)
        assert not creating.done()
    await creating
    await store.close()


async def test_a_busy_event_loop_blocks_for_a_batch_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    # A loop that is busy without pause keeps the thread waiting for the interpreter lock.
    blocked, busy = threading.Event(), True

    class Noted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            blocked.set()
            return super().wait(timeout)

    monkeypatch.setattr(batch_thread, "threading", SimpleNamespace(Event=Noted, Thread=threading.Thread))

    def run(work: list[str]) -> BatchResult:
        return BatchResult([(blocked.wait(60), None) for _ in work])

    async def compute() -> None:
        while busy:
            await turns()

    computing = asyncio.create_task(compute())
    thread: BatchThread[str] = BatchThread("test", run, max_batch=100, max_queued=100)
    assert await thread.submit("long"), "the loop did not block"
    busy = False
    await computing
    await thread.close()


async def test_a_full_queue_refuses_operations(path: Path) -> None:
    store = SQLiteStore(path, max_queued=10)
    await store.open()
    results = await asyncio.gather(
        *(store.create(task(f"t{n}"), []) for n in range(15)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, StoreUnavailable)]
    assert len(refused) == 5
    assert "overloaded" in str(refused[0])
    assert await store.count("ready") == 10
    await store.create(task("later"), [])
    await store.close()


async def test_closing_finishes_queued_operations(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    creating = [asyncio.create_task(store.create(task(f"t{n}"), [])) for n in range(1000)]
    await turns()
    await store.close()
    await asyncio.gather(*creating)
    assert fetch_number(path, "SELECT count(*) FROM tasks") == 1000


async def test_a_store_leaves_no_thread_behind(path: Path) -> None:
    before = set(threading.enumerate())
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name.startswith("antiphon")]


async def test_the_file_is_polled_only_while_there_are_watchers(sqlite: SQLiteStore) -> None:
    threads = sqlite.opened()
    async with sqlite.watch("a"):
        assert threads.poller.active.is_set()
        async with sqlite.watch_ready():
            pass
        assert threads.poller.active.is_set()
    assert not threads.poller.active.is_set()


async def test_claims_of_a_cancelled_caller_are_released(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [])
    with locked(path):
        claiming = asyncio.create_task(sqlite.claim("gone", lease=1000, limit=1))
        await sqlite.get("a")
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
    async with sqlite.watch_ready() as ready:
        while not (claims := await sqlite.claim("w", lease=1, limit=1)):
            assert await ready.wait(60)
    assert [claim.record.id for claim in claims] == ["a"]


async def test_a_claim_cancelled_while_closing_lasts_until_its_lease_ends(
    sqlite: SQLiteStore, clock: Clock
) -> None:
    await sqlite.create(task(), [])
    claiming = asyncio.create_task(sqlite.claim("gone", lease=100, limit=1))
    await turns()
    claiming.cancel()
    await sqlite.close()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await sqlite.open()
    assert await sqlite.claim("w", lease=1, limit=1) == []
    clock.forward(101)
    assert len(await sqlite.claim("w", lease=1, limit=1)) == 1


async def test_an_invalid_operation_fails_alone(sqlite: SQLiteStore) -> None:
    huge = 2**70  # larger than SQLite's integers: an unknown token, not an error
    await asyncio.gather(*(sqlite.create(task(id), []) for id in "ab"))
    results = await asyncio.gather(
        sqlite.append("a", [("x", 1)], expect=0, phase="ready", head=None),
        sqlite.use_once("\ud800", until=START),
        sqlite.append("b", [("x", 1)], expect=0, phase="ready", head=None),
        sqlite.renew([("a", huge)], lease=1),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, UnicodeEncodeError, int, set]
    assert len(await sqlite.read("a")) == len(await sqlite.read("b")) == 1


async def test_entries_of_a_newer_format_are_refused(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [("x", 1)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE entries SET format = ?", (statements.FORMAT + 1,))
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnavailable, match="newer"):
        await sqlite.read("a")
    assert await sqlite.get("a") == task(version=1)
