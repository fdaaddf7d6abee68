"""The contract of tallies: they agree with the lists, and they are kept by hour."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.store.contract import Count, HourlyTally, Store, Tally, TaskFilter
from antiphon.store.postgres import PostgresStore, migrations
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.statements import sql
from antiphon.store.sqlite import SQLiteStore

from .support import START, Clock, number, task
from .test_filters import FILTERS, HEADS, counted_steps, create_all, listed
from .test_postgres import direct_connection
from .test_postgres_snapshots import max_pages

HOUR = START // 3_600_000 * 3_600_000
DONE = {"state": "done"}
FAILED = {"state": "faulted"}


async def counts(store: Store, **options: Any) -> dict[tuple[str, str | None], int]:
    """Return the numbers of tasks by phase and outcome."""
    found: dict[tuple[str, str | None], int] = {}
    for row in (await store.tallies(**options)).rows:
        found[row.phase, row.outcome] = found.get((row.phase, row.outcome), 0) + row.tasks
    return found


async def hours(store: Store, **options: Any) -> dict[tuple[int, str], int]:
    """Return the numbers of tasks by hour, counted from the first, and kind."""
    found = await store.hourly_tallies(**{"since": 0, **options})
    return {((row.hour - HOUR) // 3_600_000, row.kind): row.tasks for row in found}


async def test_counts_agree_with_the_lists(store: Store) -> None:
    await create_all(store)
    combined = [
        TaskFilter(**{**json_fields(one), **json_fields(other)})
        for one, other in itertools.combinations(FILTERS, 2)
    ]
    for filter in (*FILTERS, *combined):
        for principal, server in itertools.product((None, "ann"), (None, "s", "")):
            expected = Count(len(await listed(store, filter, principal, server=server)))
            assert await store.count_listed(principal, filter=filter, server=server) == expected, filter


def json_fields(filter: TaskFilter) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(filter)
    return found


async def test_tallies_have_servers_tools_phases_and_outcomes(store: Store) -> None:
    await create_all(store)
    tallies = await store.tallies()
    assert tallies.is_exact
    assert sum(row.tasks for row in tallies.rows) == 36
    assert all(row.tasks > 0 for row in tallies.rows)
    assert {row.server for row in tallies.rows} == {"", "s"}
    assert Tally("s", "b\0", "ended", "done", 3) in tallies.rows
    assert tallies.count() == 36
    assert tallies.count(TaskFilter(tool="a", outcome="failed")) == 4
    assert await counts(store) == {
        ("ready", None): 8,
        ("waiting", None): 4,
        ("ended", "done"): 8,
        ("ended", "failed"): 8,
        ("ended", "cancelled"): 4,
        ("ended", None): 4,
    }
    with pytest.raises(ValueError, match="count_listed"):
        tallies.count(TaskFilter(created_since=START))


async def test_each_change_of_a_task_changes_the_tallies(store: Store, clock: Clock) -> None:
    await store.create(task(expires=START + 5000), [])
    assert await counts(store) == {("ready", None): 1}
    (claim,) = await store.claim("w", lease=10, limit=1)
    assert await counts(store) == {("ready", None): 1}
    await store.append("a", [], expect=0, phase="waiting", head={}, token=claim.token, wakes=START + 1000)
    assert await counts(store) == {("waiting", None): 1}
    clock.forward(1)
    assert await store.wake(("woken", {})) == ["a"]
    assert await counts(store) == {("ready", None): 1}
    await store.append("a", [], expect=1, phase="ended", head=FAILED)
    assert await counts(store) == {("ended", "failed"): 1}
    await store.append("a", [], expect=1, phase="ended", head=DONE)
    assert await counts(store) == {("ended", "done"): 1}
    await store.append("a", [], expect=1, phase="ready", head={})
    assert await counts(store) == {("ready", None): 1}
    await store.append("a", [], expect=1, phase="ended", head=DONE)
    clock.forward(4)
    assert await counts(store) == {}, "an expired task is in no list"
    assert await store.count_listed(None) == Count(0)
    assert await store.count("ended") == 1
    assert len(await store.expire()) == 1
    assert await counts(store) == {}


async def test_a_refused_change_changes_no_tally(store: Store) -> None:
    await store.create(task(), [])
    with pytest.raises(Exception, match="in use"):
        await store.create(task(phase="ended"), [])
    with pytest.raises(Exception, match="expected 7"):
        await store.append("a", [], expect=7, phase="ended", head=DONE)
    assert await counts(store) == {("ready", None): 1}


async def test_a_restored_task_is_counted(store: Store) -> None:
    record = task(phase="ended", head=DONE, updated=START + 3_600_000)
    assert await store.restore(record, [])
    assert not await store.restore(record, [])
    assert await counts(store) == {("ended", "done"): 1}
    assert await hours(store) == {(0, "created"): 1, (1, "done"): 1}


async def test_hours_keep_tasks_that_were_deleted(store: Store, clock: Clock) -> None:
    for n, head in enumerate((DONE, FAILED, {"state": "cancelled"}, None)):
        await store.create(task(f"t{n}", created=clock.now, expires=START + 10_000_000), [])
        clock.forward(1800)
        await store.append(f"t{n}", [], expect=0, phase="ended", head=head)
    expected = {
        (0, "created"): 2,
        (1, "created"): 2,
        (0, "done"): 1,
        (1, "failed"): 1,
        (1, "cancelled"): 1,
        (2, "ended"): 1,
    }
    assert (clock.now - HOUR) // 3_600_000 == 2
    assert await hours(store) == expected
    clock.forward(10_000)
    assert len(await store.expire()) == 4
    assert await hours(store) == expected
    found = await store.hourly_tallies(since=HOUR + 3_600_000 + 5)
    assert found[0] == HourlyTally(HOUR + 3_600_000, "", "echo", "cancelled", 1)
    assert {row.hour for row in found} == {HOUR + 3_600_000, HOUR + 7_200_000}
    clock.forward(15 * 24 * 3600)
    await store.expire()
    assert await hours(store) == {}


async def test_a_retried_task_counts_each_time_it_ends(store: Store) -> None:
    await store.create(task(), [])
    for phase, head in (("ended", FAILED), ("ready", {}), ("ended", DONE), ("ended", DONE)):
        await store.append("a", [], expect=0, phase=phase, head=head)  # type: ignore[arg-type]
    assert await hours(store) == {(0, "created"): 1, (0, "failed"): 1, (0, "done"): 1}


async def test_tallies_of_one_server(store: Store) -> None:
    for n, server in enumerate(("", "one", "two")):
        await store.create(task(str(n), server=server, phase="waiting"), [])
    assert await counts(store, server="one") == {("waiting", None): 2}
    assert (await store.hourly_tallies(since=0, server="two"))[-1].server == "two"
    assert await hours(store, server="two") == {(0, "created"): 1}
    assert await store.count("waiting", server="one") == 2
    assert await store.count("ready", server="one") == 0


async def test_a_count_has_a_bound(store: Store) -> None:
    for n in range(5):
        await store.create(task(f"t{n}"), [])
    assert await store.count_listed("ann", most=5) == Count(5)
    assert await store.count_listed("ann", most=4) == Count(4, is_exact=False)
    assert await store.count_listed(None, most=4) == Count(5)
    aged = TaskFilter(created_since=START)
    assert await store.count_listed(None, filter=aged, most=4) == Count(4, is_exact=False)
    with pytest.raises(ValueError, match="phase"):
        await store.count_listed(None, filter=TaskFilter(phase="over"))  # type: ignore[arg-type]


async def test_leases_name_the_workers(store: Store, clock: Clock) -> None:
    for n in range(5):
        await store.create(task(f"t{n}", tool="a" if n < 3 else "b", server="s"), [])
    assert await store.leases() == []
    await store.claim("one", lease=10, limit=2, tools=["a"], server="s")
    clock.forward(4)
    claims = await store.claim("two", lease=10, limit=5, server="s")
    found = {(lease.worker, lease.tool): (lease.tasks, lease.left) for lease in await store.leases()}
    assert found == {("one", "a"): (2, 6.0), ("two", "a"): (1, 10.0), ("two", "b"): (2, 10.0)}
    assert {lease.server for lease in await store.leases()} == {"s"}
    for claim in claims:
        await store.release(claim.record.id, claim.token, delay=5)
    clock.forward(7)
    assert [(lease.worker, lease.left) for lease in await store.leases()] == [("one", -1.0)]


async def test_tasks_of_a_store_before_the_migration_are_counted_in_postgres(
    database: Any, clock: Clock
) -> None:
    url = database.url()
    steps = migrations.scripts()
    before = next(number for number, step in enumerate(steps) if "tally_inserted" in step)
    await migrations.prepare(Database.from_url(url, 10.0), steps[:before])
    insert = """INSERT INTO tasks
            (id, principal, tool, phase, version, created, updated, token, lease, format, head)
        VALUES ($1, '', 'a', $2, 0, $3, $3, 0, 0, 1, $4)"""
    store = PostgresStore(url, clock=clock)
    async with direct_connection(url) as connection:
        for n, (phase, head) in enumerate(HEADS):
            await connection.execute(insert, f"t{n}", phase, START, json.dumps(head))
        await store.open()
        # A process of the version before goes on, and does not know the tallies.
        await connection.execute(insert, "new", "ready", START, "{}")
        await connection.execute(
            "UPDATE tasks SET phase = 'ended', head = $1 WHERE id = 't0'", '{"state":"done"}'
        )
        await connection.execute("DELETE FROM tasks WHERE id = 't1'")
    for filter in FILTERS:
        assert await store.count_listed(None, filter=filter) == Count(len(await listed(store, filter))), (
            filter
        )
    assert (await hours(store))[0, "created"] == 10
    await store.close()


async def test_tasks_of_earlier_versions_are_counted_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for n, (phase, head) in enumerate(HEADS):  # through the view, as the first versions do
        connection.execute(
            "INSERT INTO tasks VALUES (?, ?, '', 'a', ?, 0, ?, ?, NULL, 0, NULL, 0, 1, ?)",
            (n + 1, f"t{n}", phase, START, START, json.dumps(head)),
        )
    connection.execute("UPDATE tasks SET phase = 'ended', head = ? WHERE id = 't0'", (json.dumps(DONE),))
    connection.execute("DELETE FROM tasks WHERE id = 't1'")
    connection.close()
    for filter in FILTERS:
        assert await sqlite.count_listed(None, filter=filter) == Count(len(await listed(sqlite, filter)))
    assert (await hours(sqlite))[0, "created"] == 9
    assert number(path, "SELECT sum(tasks) FROM tallies WHERE hour = -1") == 8


async def test_numbers_cost_the_same_with_many_tasks_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    await create_all(sqlite)
    await sqlite.tallies()
    connection = sqlite.opened().reader.connection
    assert connection is not None
    steps = []
    for count in (0, 20_000):
        direct = sqlite3.connect(path)
        direct.execute(
            """WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
            INSERT INTO task_rows
                (id, principal, tool, phase, version, created, updated, expires, token, lease, format, head)
            SELECT 'c' || n, 'ann', 'a', 'ended', 0, ?, ?, ?, 0, 0, 1, '{"state":"done"}'
            FROM numbers WHERE n <= ?""",
            (count, START, START, START + 10**9, count),
        )
        direct.commit()
        direct.close()
        with counted_steps(connection) as counted:
            await sqlite.tallies()
            await sqlite.hourly_tallies(since=0)
            await sqlite.leases()
            await sqlite.count_listed(None, filter=TaskFilter(outcome="failed"))
            await sqlite.count_listed("ann", most=5)
            await sqlite.list("ann", limit=5, filter=TaskFilter(outcome="failed"), oldest_first=True)
        steps.append(counted[0])
    assert (await sqlite.tallies()).count(TaskFilter(outcome="done")) == 20_008
    assert steps[1] <= steps[0] + 100, "counting 2000 tasks of the principal is 60 of these"


async def test_numbers_cost_the_same_with_many_tasks_in_postgres(database: Any) -> None:
    url = database.url()
    store = PostgresStore(url, poll_interval=3600)  # with the clock of the database
    await store.open()
    await create_all(store)
    pages: list[int] = []
    async with direct_connection(url) as connection:
        await connection.execute("SET enable_seqscan = off; SET plan_cache_mode = force_custom_plan")
        for count in (0, 20_000):
            await connection.execute(
                """INSERT INTO tasks
                    (id, principal, tool, phase, version, created, updated, expires, token, lease, format,
                    head)
                SELECT 'c' || n, 'ann', 'a', 'ended', 0, $2, $2, $2 + 1000000000000, 0, 0, 1,
                    '{"state":"done"}'
                FROM generate_series(1, $1::bigint) AS n""",
                count,
                START,
            )
            await connection.execute("VACUUM ANALYZE tasks, tallies")
            for name, values in (
                ("tallies", (None, None, 10_001)),
                ("hourly_tallies", (0, None)),
                ("leases", (None,)),
            ):
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql(name)}"
                plan = await connection.fetchval(explain, *values)
                pages.append(max_pages(json.loads(plan)[0]["Plan"]))
    assert (await store.tallies()).count(TaskFilter(outcome="done")) == 20_008
    await store.close()
    assert all(many <= few + 20 for few, many in zip(pages[:3], pages[3:], strict=True)), pages


async def test_a_page_of_a_long_log_costs_the_same_as_of_a_short_one_in_postgres(database: Any) -> None:
    url = database.url()
    store = PostgresStore(url, poll_interval=3600)
    await store.open()
    await store.create(task("long"), [])
    pages: list[int] = []
    async with direct_connection(url) as connection:
        for first, last in ((1, 100), (101, 20_000)):
            await connection.execute(
                """INSERT INTO entries (task, number, kind, at, format, data)
                SELECT key, n, 'emitted', 1, 1, '{"blocks":[]}'
                FROM tasks CROSS JOIN generate_series($1::bigint, $2::bigint) AS n WHERE id = 'long'""",
                first,
                last,
            )
            await connection.execute("VACUUM ANALYZE tasks, entries")
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql('read')}"
            plan = await connection.fetchval(explain, ["long"], [10], [50], None)
            pages.append(max_pages(json.loads(plan)[0]["Plan"]))
    await store.close()
    assert pages[1] <= pages[0] + 10, pages


async def test_processes_count_at_the_same_time_in_postgres(database: Any) -> None:
    url = database.url()
    stores = [PostgresStore(url) for _ in range(4)]
    for store in stores:
        await store.open()

    async def work(store: Store, name: str) -> None:
        for n in range(40):
            await store.create(task(f"{name}{n}"), [])
            await store.append(f"{name}{n}", [], expect=0, phase="ended", head=DONE)

    await asyncio.gather(*(work(store, name) for store, name in zip(stores, "abcd", strict=True)))
    assert await counts(stores[0]) == {("ended", "done"): 160}
    async with direct_connection(url) as connection:
        slots = await connection.fetchval("SELECT count(DISTINCT slot) FROM tallies")
        assert slots >= 4, "each connection has a slot of its own"
    for store in stores:
        await store.close()


async def test_the_numbers_of_ended_hours_are_merged_in_postgres(
    postgres: PostgresStore, clock: Clock
) -> None:
    for n in range(3):
        await postgres.create(task(f"t{n}", created=clock.now), [])
    clock.forward(3 * 3600)
    before = await hours(postgres)
    await postgres.expire()
    assert await hours(postgres) == before == {(0, "created"): 3}
    await postgres.create(task("late", created=START), [])
    clock.forward(3600)
    await postgres.expire()
    assert await hours(postgres) == {(0, "created"): 4}
