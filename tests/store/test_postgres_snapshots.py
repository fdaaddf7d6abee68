"""Claims while another transaction is open for long, such as the one of `pg_dump`: cheap, and none is lost.

The cost of a statement is the number of pages that it reads, as PostgreSQL counts them.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.store.postgres import PostgresStore, claimer, writer
from antiphon.store.postgres.statements import sql
from tests.support.postgres import Postgres

from .support import START, Clock, task
from .test_postgres import direct_connection, end_connections

TOOLS = ["echo", "other"]
SERVER = "here"


@pytest.fixture
def url(database: Postgres) -> str:
    """The URL of a new schema."""
    return database.url()


@pytest.fixture
async def store(url: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    """An open store that does not poll."""
    opened = PostgresStore(url, clock=clock, poll_interval=3600)
    await opened.open()
    yield opened
    await opened.close()


@asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[None]:
    """A transaction that sees the database as it is now, like the one of `pg_dump`."""
    async with direct_connection(url) as connection, connection.transaction(isolation="repeatable_read"):
        await connection.execute("SELECT 1")
        yield


@pytest.fixture
async def snapshot(url: str) -> AsyncIterator[None]:
    """A transaction that sees the database as it is before the test."""
    async with open_snapshot(url):
        yield


async def claimed(store: PostgresStore, **options: Any) -> list[str]:
    """Claim tasks, and return their ids."""
    values = {"lease": 10.0, "limit": 100, "tools": TOOLS, "server": SERVER} | options
    return [claim.record.id for claim in await store.claim("w", **values)]


async def run_tasks(store: PostgresStore, clock: Clock, count: int, *, waits: bool = False) -> None:
    """Create, claim and end tasks. With `waits`, each task waits for an answer in between."""
    for first in range(0, count, 100):
        ids = [f"t{clock.now}-{n}" for n in range(first, first + 100)]
        await asyncio.gather(*(store.create(task(id, created=clock.now, server=SERVER), []) for id in ids))
        claims = await store.claim("w", lease=10, limit=100, tools=TOOLS, server=SERVER)
        if waits:
            await asyncio.gather(
                *(
                    store.append(claim.record.id, [], expect=0, phase="waiting", head=1, token=claim.token)
                    for claim in claims
                )
            )
            clock.forward(1)
            await asyncio.gather(*(store.append(id, [], expect=0, phase="ready", head=1) for id in ids))
            claims = await store.claim("w", lease=10, limit=100, tools=TOOLS, server=SERVER)
        assert [claim.record.id for claim in claims] == ids
        await asyncio.gather(
            *(
                store.append(
                    claim.record.id,
                    [],
                    expect=0,
                    phase="ended",
                    head=1,
                    token=claim.token,
                    expires=clock.now + 5000,
                )
                for claim in claims
            )
        )
        clock.forward(1)


def max_pages(plan: dict[str, Any]) -> int:
    """Return the pages of the most expensive part: the total leaves out changes that return nothing."""
    own = int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return max([own, *map(max_pages, plan.get("Plans", ()))])


@contextmanager
def count_pages(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the pages that the writing statements read, by the first words of the statement."""
    writing = store.opened().writer.connection
    fetch, pages = writing.fetch, Counter[str]()

    async def counting(statement: str, *values: Any, retry: bool = False) -> list[Any]:
        connection = await writing.connect()
        transaction = connection.transaction()
        await transaction.start()
        explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
        plan = json.loads(await connection.fetchval(explain + statement, *values))[0]["Plan"]
        await transaction.rollback()
        pages[statement.split()[1]] += max_pages(plan)
        return await fetch(statement, *values, retry=retry)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "fetch", counting)
        yield pages


async def cost(store: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the pages that each kind of statement reads for one task from its creation to its end."""
    with count_pages(store, monkeypatch) as pages:
        await store.create(task(f"one{secrets.token_hex(4)}", created=clock.now, server=SERVER), [])
        (claim,) = await store.claim("w", lease=10, limit=10, tools=TOOLS, server=SERVER)
        await store.append(
            claim.record.id,
            [],
            expect=0,
            phase="ended",
            head=1,
            token=claim.token,
            expires=clock.now + 60_000,
        )
        assert await store.claim("w", lease=10, limit=10, tools=TOOLS, server=SERVER) == []
        await store.expire()
    return pages


@pytest.mark.parametrize("waits", [False, True])
async def test_an_open_transaction_does_not_make_claims_expensive(
    store: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch, snapshot: None, waits: bool
) -> None:
    await run_tasks(store, clock, 100)
    before = await cost(store, clock, monkeypatch)
    await run_tasks(store, clock, 2000, waits=waits)
    clock.forward(60)  # after which the leases of all these tasks are over, and the tasks expired
    assert len(await store.expire(limit=10_000)) == 2101
    assert await claimed(store) == []
    after = await cost(store, clock, monkeypatch)
    assert after["Claims"] <= 2 * before["Claims"] + 30
    assert after["Creates"] <= 2 * before["Creates"] + 30
    assert after["Gets"] <= 2 * before["Gets"] + 30
    assert after["Deletes"] <= 2 * before["Deletes"] + 30


async def test_a_claim_reads_no_other_index_of_claimable_tasks(store: PostgresStore, url: str) -> None:
    # PostgreSQL chooses between indexes by statistics that do not count dead entries: leave it no choice.
    async with direct_connection(url) as connection, connection.transaction():
        await connection.execute("DROP INDEX tasks_arrived; SET LOCAL enable_seqscan = off")
        values = None, "w", 1, 1, ["echo"], 1, 1, 1, ["here"]
        rows = await connection.fetch("EXPLAIN " + sql("claim_arrived"), *values)
        plan = [row[0] for row in rows]
    assert not [line for line in plan if "tasks_free" in line]


async def test_the_counts_of_a_process_are_spread_over_many_rows(store: PostgresStore, url: str) -> None:
    # While another transaction is open for long, each change of a row makes its next change slower.
    for n in range(3 * writer.MAX_SLOT_USES):
        await store.create(task(f"t{n}", phase="ended"), [])
    assert await store.count("ended") == 3 * writer.MAX_SLOT_USES
    async with direct_connection(url) as connection:
        assert await connection.fetchval("SELECT count(DISTINCT slot) FROM counts") > 1


async def test_an_open_transaction_does_not_make_messages_expensive(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch, snapshot: None
) -> None:
    async with direct_connection(url) as connection:
        await connection.execute(
            "INSERT INTO messages (origin, at, topic, data) "
            "SELECT 'other', clock_timestamp() - interval '1 hour', 'news', '1' "
            "FROM generate_series(1, 5000)"
        )
    for _ in range(2):  # deletes the old messages
        await asyncio.gather(*(store.publish("news", n) for n in range(1000)))
    with count_pages(store, monkeypatch) as pages:
        await store.publish("news", 1)
    async with direct_connection(url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM messages WHERE origin = 'other'") == 0
    assert pages["Publishes"] <= 30


async def test_the_poll_finds_the_tasks_that_became_claimable_since_the_last_poll(
    store: PostgresStore, url: str
) -> None:
    listener = store.opened().listener
    other = PostgresStore(url)
    await other.open()
    async with store.watch_ready() as ready:
        await other.create(task(), [])
        assert await ready.wait(60)
        await listener.poll()
        assert await ready.wait(0)
        await listener.poll()
        await listener.poll()
        await ready.wait(0)
        (claim,) = await other.claim("w", lease=1, limit=1)
        await listener.connection.fetch("UNLISTEN *")
        await other.release("a", claim.token)
        assert not await ready.wait(0)
        await listener.poll()
        assert await ready.wait(0)
    await other.close()


# Limits lose no task


async def test_an_old_task_that_becomes_claimable_again_is_found_before_newer_ones(
    store: PostgresStore, clock: Clock
) -> None:
    await store.create(task("old", created=START - 1000), [])
    (claim,) = await store.claim("w", lease=1_000_000, limit=1)
    await run_tasks(store, clock, 300)
    await store.create(task("new", created=clock.now), [])
    await store.release("old", claim.token)
    assert await claimed(store, limit=1) == ["old"]
    assert await claimed(store, limit=1) == ["new"]
    assert await claimed(store) == []


@pytest.mark.parametrize("count", [90, 250, 1500])
async def test_tasks_that_were_not_claimed_are_found_later_in_their_order(
    store: PostgresStore, clock: Clock, count: int
) -> None:
    late = await store.create(task("late", created=START - 1), [], worker="one", lease=1000)
    assert late is not None
    assert await claimed(store) == []
    order = [f"t{n}" for n in range(count)]
    await asyncio.gather(
        *(
            store.create(task(id, created=START + n, principal=id), [])
            for n, id in reversed([*enumerate(order)])
        )
    )
    found = await claimed(store, limit=40)
    await store.release("late", late.token)
    found += await claimed(store, limit=1)
    while ids := await claimed(store, limit=40):
        found += ids
    assert found == [*order[:40], "late", *order[40:]]


async def test_a_task_is_found_although_its_transaction_was_open_during_many_claims(
    store: PostgresStore, clock: Clock, url: str
) -> None:
    await store.create(task("slow", phase="waiting"), [])
    async with direct_connection(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE tasks SET phase = 'ready' WHERE id = 'slow'")
        await run_tasks(store, clock, 300)
        assert await claimed(store) == []
        await transaction.commit()
    assert await claimed(store) == ["slow"]


async def test_a_task_is_found_after_another_process_failed_to_claim_it(
    store: PostgresStore, clock: Clock, url: str
) -> None:
    await store.create(task(), [])
    async with direct_connection(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE tasks SET lease = 1, worker = 'other', token = 1")
        assert await claimed(store) == []
        assert await claimed(store) == []
        await transaction.rollback()
    assert await claimed(store) == ["a"]


async def test_a_task_that_the_version_before_frees_is_found(
    store: PostgresStore, clock: Clock, url: str
) -> None:
    await store.create(task("freed"), [], worker="old", lease=1000)
    await run_tasks(store, clock, 200)
    async with direct_connection(url) as connection:  # as the version before writes, without the new column
        await connection.execute("UPDATE tasks SET worker = NULL, lease = 0 WHERE id = 'freed'")
        await connection.execute(
            "INSERT INTO tasks "
            "(id, principal, tool, phase, version, created, updated, token, lease, format, head) "
            "VALUES ('made', 'ann', 'echo', 'ready', 0, $1, $1, 0, 0, 1, '1')",
            START,
        )
    assert sorted(await claimed(store)) == ["freed", "made"]


async def test_a_lease_that_ends_is_found_whatever_the_clock_did_before(
    store: PostgresStore, clock: Clock
) -> None:
    await store.create(task(), [], worker="lost", lease=100)
    assert await claimed(store) == []
    clock.back(3600)
    assert await claimed(store) == []
    await store.create(task("b"), [], worker="lost", lease=1)
    clock.forward(30)
    assert await claimed(store) == ["b"]
    clock.forward(3700)
    assert "a" in await claimed(store)


async def test_many_leases_that_ended_are_all_found(store: PostgresStore, clock: Clock) -> None:
    ids = [f"t{n}" for n in range(1300)]
    await asyncio.gather(
        *(store.create(task(id, created=START + n), [], worker="lost", lease=1) for n, id in enumerate(ids))
    )
    clock.forward(60)
    assert await claimed(store, limit=1100) == ids[:1100]
    clock.forward(1)
    assert await claimed(store, limit=1100) == ids[1100:]


async def test_a_lease_of_a_time_before_the_clock_went_back_is_found(
    store: PostgresStore, clock: Clock
) -> None:
    assert await claimed(store) == []
    clock.back(10)
    await store.create(task(), [], worker="lost", lease=1)
    clock.forward(20)
    assert await claimed(store) == ["a"]


async def test_another_connection_begins_a_search_at_the_start(
    store: PostgresStore, clock: Clock, url: str
) -> None:
    assert await claimed(store) == []
    async with direct_connection(url) as connection:
        # A database that was restored from a copy counts its transactions anew.
        await connection.execute("ALTER TABLE tasks DISABLE TRIGGER ALL")
        await store.create(task(), [])
        assert await claimed(store) == []
        await end_connections(connection, store)
    assert await claimed(store) == ["a"]


async def test_a_search_begins_at_the_start_now_and_then(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "next_full_search", lambda began: began)
    assert await claimed(store) == []
    async with direct_connection(url) as connection:
        await connection.execute("ALTER TABLE tasks DISABLE TRIGGER ALL")
        await store.create(task(), [])
    assert await claimed(store) == ["a"]


def test_searches_from_the_start_that_take_long_are_less_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer, "time", SimpleNamespace(monotonic=lambda: 10_000.0))
    assert claimer.next_full_search(10_000.0) == 10_060
    assert claimer.next_full_search(9990.0) == 12_000


async def test_the_limits_of_many_sets_of_tools_are_bounded(store: PostgresStore) -> None:
    for n in range(40):
        assert await claimed(store, tools=[f"tool{n}"]) == []
    assert len(store.opened().writer.claimer.limits_by_queues) <= 16
