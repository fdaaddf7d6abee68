"""Claims go round the principals, so that a long queue of one principal does not delay the others."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.store.contract import Claim, Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.statements import sql
from antiphon.store.sqlite import SQLiteStore, statements
from tests.support.postgres import Postgres

from .support import START, Clock, task
from .test_postgres_snapshots import max_pages

FLOOD = 2000
OTHERS = [f"other{n}" for n in range(99)]


async def queue(store: Store, principal: str, count: int, *, prefix: str = "", **fields: Any) -> None:
    """Queue tasks of a principal, many at once, as a busy process does."""
    ids = [f"{principal}/{prefix}{n}" for n in range(count)]
    await asyncio.gather(*(store.create(task(id, principal=principal, **fields), []) for id in ids))


async def claim(store: Store, limit: int, **options: Any) -> Sequence[Claim]:
    return await store.claim("w", lease=1000, limit=limit, **options)


async def claimed(store: Store, limit: int, **options: Any) -> list[str]:
    return [claim.record.id for claim in await claim(store, limit, **options)]


def owners(ids: Sequence[str]) -> list[str]:
    return [id.partition("/")[0] for id in ids]


def numbers(ids: Sequence[str], principal: str) -> list[int]:
    return [int(id.rpartition("/")[2]) for id in ids if id.startswith(f"{principal}/")]


async def test_a_long_queue_of_one_principal_does_not_delay_the_others(store: Store) -> None:
    await queue(store, "flood", FLOOD)
    assert owners(await claimed(store, 100)) == ["flood"] * 100
    for principal in OTHERS:
        await queue(store, principal, 10)
    found: list[str] = []
    while len(Counter(owners(found))) < 100 or min(Counter(owners(found)).values()) < 10:
        batch = await claimed(store, 50)
        assert len(set(owners(batch))) == 50  # each claim serves as many principals as it claims tasks
        found += batch
    assert Counter(owners(found))["flood"] <= 11
    for principal in OTHERS:
        assert numbers(found, principal) == list(range(10))
    assert numbers(found, "flood") == list(range(100, 100 + Counter(owners(found))["flood"]))


async def test_tasks_of_one_principal_keep_their_order(store: Store) -> None:
    for n in range(5):
        await queue(store, "ann", 100, prefix=f"{n:02}")
    found = await claimed(store, 500)
    assert found == [f"ann/{n:02}{m}" for n in range(5) for m in range(100)]


async def test_a_principal_whose_queue_is_empty_again_begins_with_the_current_round(store: Store) -> None:
    await queue(store, "ann", 300)
    await claimed(store, 300)
    await queue(store, "bob", 300)
    await claimed(store, 100)
    await queue(store, "ann", 3, prefix="again")
    assert owners(await claimed(store, 6)) == ["bob", "ann"] * 3


async def test_the_rest_of_a_long_queue_is_not_delayed_by_another_long_queue(store: Store) -> None:
    await queue(store, "ann", 300)
    await claimed(store, 290)
    await queue(store, "bob", 300)
    assert Counter(owners(await claimed(store, 20))) == {"ann": 10, "bob": 10}


async def test_a_steady_stream_of_new_principals_does_not_delay_a_queue(store: Store) -> None:
    await queue(store, "ann", 20)
    await claimed(store, 10)
    found: list[str] = []
    for n in range(40):
        await queue(store, f"new{n}", 1)
        await queue(store, f"also{n}", 1)
        found += await claimed(store, 1)  # there are always more new tasks than claims, so rounds get longer
    assert owners(found).count("ann") >= 4


async def test_a_task_that_a_worker_gives_back_keeps_its_place(store: Store, clock: Clock) -> None:
    await queue(store, "ann", 5)
    await queue(store, "bob", 5)
    first, second, third = await claim(store, 3)
    await queue(store, "carol", 1)
    await store.release(first.record.id, first.token)
    await store.append(second.record.id, [], expect=0, phase="ready", head=None, token=second.token)
    clock.forward(1000)
    assert await claimed(store, 3) == [first.record.id, second.record.id, third.record.id]


async def wait(store: Store, principal: str, count: int, **fields: Any) -> None:
    """Let tasks of a principal wait."""
    waiting: dict[str, Any] = {"phase": "waiting", "tags": ("go",), "wakes": START + 1000, **fields}
    await queue(store, principal, count, **waiting)


async def answer(store: Store, id: str) -> None:
    """Let a waiting task without entries go on."""
    await store.append(id, [], expect=0, phase="ready", head=None)


WAKING: list[Any] = [
    pytest.param(lambda store: store.wake(("woken", {})), id="time"),
    pytest.param(lambda store: store.wake_tagged(["go"], ("woken", {})), id="event"),
    pytest.param(
        lambda store: asyncio.gather(*(answer(store, f"flood/{n}") for n in range(100))), id="answer"
    ),
]


@pytest.mark.parametrize("wake", WAKING)
async def test_many_tasks_that_become_ready_at_once_do_not_delay_the_others(
    store: Store, clock: Clock, wake: Any
) -> None:
    await wait(store, "flood", 100, created=START - 1_000_000_000)
    await queue(store, "ann", 3)
    assert await claimed(store, 1) == ["ann/0"]
    clock.forward(2)
    await wake(store)
    await queue(store, "bob", 2)
    found = await claimed(store, 200)
    assert sorted(owners(found)[:3]) == ["ann", "bob", "flood"]
    assert sorted(owners(found)[3:6]) == ["ann", "bob", "flood"]
    assert sorted(numbers(found, "flood")) == list(range(100))


async def test_a_task_that_was_answered_goes_behind_those_that_were_queued_before(store: Store) -> None:
    await queue(store, "ann", 3)
    (first,) = await claim(store, 1)
    await store.append(first.record.id, [], expect=0, phase="waiting", head=None, token=first.token)
    await answer(store, first.record.id)
    await queue(store, "bob", 1)
    assert await claimed(store, 10) == ["ann/1", "bob/0", "ann/2", "ann/0"]


async def test_a_cancelled_task_gives_its_place_to_the_next_one(store: Store) -> None:
    await queue(store, "ann", 3)
    await queue(store, "bob", 3)
    for n in (2, 1):
        await store.append(f"ann/{n}", [], expect=0, phase="ended", head=None)
    await queue(store, "ann", 1, prefix="new")
    assert await claimed(store, 10) == ["ann/0", "bob/0", "bob/1", "ann/new0", "bob/2"]


async def test_a_task_that_is_queued_again_goes_behind_the_others_of_its_principal(
    store: Store, clock: Clock
) -> None:
    await queue(store, "ann", 3)
    await queue(store, "bob", 2)
    (first,) = await claim(store, 1)
    await store.release(first.record.id, first.token, delay=1, requeue=True)
    await store.release(first.record.id, first.token, requeue=True)  # the token is no longer valid
    assert await claimed(store, 1) == ["bob/0"]
    clock.forward(1)
    assert await claimed(store, 10) == ["ann/1", "bob/1", "ann/2", "ann/0"]


async def test_a_task_without_a_turn_gets_one_when_it_is_queued_again(store: Store) -> None:
    held = await store.create(task("ann/held", principal="ann"), [], worker="w", lease=10)
    assert held is not None
    await queue(store, "bob", 2)
    await queue(store, "ann", 1)
    await store.release("ann/held", held.token, requeue=True)
    assert await claimed(store, 10) == ["bob/0", "ann/0", "ann/held", "bob/1"]


async def test_the_queued_tasks_of_a_tool_are_counted(store: Store, clock: Clock) -> None:
    await queue(store, "ann", 3, server="one", tool="a")
    await queue(store, "bob", 2, server="two", tool="a")
    await queue(store, "eve", 4, server="one", tool="b")
    await wait(store, "max", 1, server="one", tool="a")
    assert await store.count_queued("a", most=9) == 5
    assert await store.count_queued("a", most=9, server="one") == 3
    assert await store.count_queued("a", most=2, server="one") == 2
    assert await store.count_queued("a", most=9, server="three") == 0
    assert await store.count_queued("c", most=9) == 0
    assert await claimed(store, 1, server="one", tools=["a"]) == ["ann/0"]
    await store.append("ann/1", [], expect=0, phase="ended", head=None)
    assert await store.count_queued("a", most=9, server="one") == 1


async def test_tasks_of_all_tools_of_a_principal_are_one_queue(store: Store) -> None:
    for n in range(6):
        await queue(store, "ann", 1, prefix=f"{n}-", tool=f"tool{n % 3}")
    await queue(store, "bob", 2, tool="tool0")
    assert owners(await claimed(store, 4)) == ["ann", "bob", "ann", "bob"]


async def test_each_server_has_its_own_rounds(store: Store) -> None:
    await queue(store, "ann", 50, server="one")
    await claimed(store, 40, server="one")
    await queue(store, "bob", 2, server="two")
    await queue(store, "ann", 2, server="two", prefix="two")
    assert await claimed(store, 4, server="two") == ["bob/0", "ann/two0", "bob/1", "ann/two1"]


async def test_a_task_that_is_claimed_when_it_is_created_takes_no_turn(store: Store) -> None:
    for n in range(50):
        await store.create(task(f"held{n}"), [], worker="w", lease=10)
    await queue(store, "bob", 2)
    await queue(store, "ann", 2)
    assert await claimed(store, 10) == ["bob/0", "ann/0", "bob/1", "ann/1"]


# Several processes, restarts and other versions


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, path: Path, clock: Clock) -> Any:
    """Return a function that returns another store on the same database, like another process."""
    if request.param == "sqlite":
        return lambda: SQLiteStore(path, clock=clock)
    url = request.getfixturevalue("database").url()
    return lambda: PostgresStore(url, clock=clock)


async def test_a_restart_keeps_the_order(opener: Any) -> None:
    store = opener()
    await store.open()
    await queue(store, "ann", 30)
    await claimed(store, 10)
    await store.close()
    store = opener()
    await store.open()
    await queue(store, "ann", 2, prefix="later")
    await queue(store, "bob", 5)
    found = await claimed(store, 50)
    await store.close()
    assert owners(found)[:10] == ["ann", "bob"] * 5
    assert [id for id in found if id.startswith("ann")] == [
        *(f"ann/{n}" for n in range(10, 30)),
        "ann/later0",
        "ann/later1",
    ]


async def test_two_processes_share_the_rounds(opener: Any) -> None:
    one, two = opener(), opener()
    await one.open()
    await two.open()
    for n in range(10):  # one principal, by way of both processes
        await queue(one, "ann", 10, prefix=f"{n}a")
        await queue(two, "ann", 10, prefix=f"{n}b")
    await queue(two, "bob", 20)
    found = [id for _ in range(10) for store in (one, two) for id in await claimed(store, 2)]
    assert owners(found) == ["ann", "bob"] * 20
    in_order = [f"ann/{n}{half}{m}" for n in range(10) for half in "ab" for m in range(10)]
    assert [id for id in found if id.startswith("ann")] == in_order[:20]
    await one.close()
    await two.close()


async def test_a_process_that_claims_nothing_learns_the_current_round(database: Postgres) -> None:
    url = database.url()
    worker, web = PostgresStore(url), PostgresStore(url)
    await worker.open()
    await web.open()
    await queue(web, "ann", 300)
    await claimed(worker, 290)
    await worker.opened().writer.claimer.record_turns(at_once=True)  # as happens about once a second
    await queue(web, "bob", 300)
    assert Counter(owners(await claimed(worker, 20))) == {"ann": 10, "bob": 10}
    await worker.close()
    await web.close()


async def test_tasks_that_the_version_before_creates_in_postgresql_are_claimed(database: Postgres) -> None:
    store = PostgresStore(database.url())
    await store.open()
    await queue(store, "ann", 5)
    connection = await store.opened().writer.connection.connect()
    await connection.execute(
        "INSERT INTO tasks "
        "(id, principal, tool, phase, version, created, updated, token, lease, format, head) "
        "VALUES ('ann/old', 'ann', 'echo', 'ready', 0, $1, $1, 0, 0, 1, '1')",
        START + 1,
    )
    assert await claimed(store, 2) == ["ann/0", "ann/old"]
    await store.close()


# What it costs


async def test_memory_keeps_nothing_about_principals_whose_queues_are_empty(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    await store.open()
    for n in range(300):
        await queue(store, "ann", 10, prefix=f"{n}-")
        await queue(store, f"new{n}", 1)
        await claimed(store, 10)
    (kept,) = [queue for (_, name), queue in store.turns.queues.items() if name == "ann"]
    assert len(kept.heap) <= 2 * len(kept.members) + 64
    await claimed(store, 10_000)
    assert store.turns.queues == {}


async def test_the_last_turn_is_one_lookup_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statements.load_turns(1)}", ("s", "p")).fetchall()
    finally:
        connection.close()
    plan = [row[3] for row in rows]
    assert any("INDEX tasks_queued (principal=? AND server=?" in line for line in plan), plan
    assert not any("TEMP B-TREE" in line or line.startswith("SCAN task_rows") for line in plan), plan


async def test_queueing_reads_as_many_pages_behind_a_long_queue_as_behind_a_short_one(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(database.url(), poll_interval=3600)
    await store.open()
    await queue(store, "ann", 10)
    writing, pages = store.opened().writer.connection, list[int]()
    fetch = writing.fetch

    async def counting(statement: str, *values: Any, retry: bool = False) -> list[Any]:
        connection = await writing.connect()
        transaction = connection.transaction()
        await transaction.start()
        text = await connection.fetchval("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement, *values)
        await transaction.rollback()
        if statement == sql("reached_turns"):
            pages.append(max_pages(json.loads(text)[0]["Plan"]))
        return await fetch(statement, *values, retry=retry)

    monkeypatch.setattr(writing, "fetch", counting)
    await queue(store, "ann", 1, prefix="short")
    monkeypatch.setattr(writing, "fetch", fetch)
    await queue(store, "ann", 3000, prefix="more")
    monkeypatch.setattr(writing, "fetch", counting)
    await queue(store, "ann", 1, prefix="long")
    await queue(store, "ann", 100, prefix="batch")
    await (await writing.connect()).execute("ANALYZE tasks")
    await queue(store, "bob", 1)
    assert 0 < pages[0] <= 10
    assert pages[1] <= pages[0] + 5
    assert pages[2] <= pages[0] + 5  # one search for the whole batch
    assert pages[3] <= pages[0] + 5
    assert len(pages) == 4
    await store.close()
