"""The contract of stored bytes: those of each sharer are known, until its tasks are deleted."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import Stale
from antiphon.store import rules
from antiphon.store.contract import Entry, Record, Store
from antiphon.store.postgres import PostgresStore, migrations
from antiphon.store.postgres.database import Database
from antiphon.store.sqlite import SQLiteStore

from .support import START, Clock, task
from .test_filters import counted_steps
from .test_postgres import direct_connection

ENTRY = ("noted", {"text": "größer"})


def size(*entries: tuple[str, Any]) -> int:
    """Return how many bytes entries have, counted in another way than the stores do."""
    return sum(128 + len(kind) + len(rules.encode_json(data).encode()) for kind, data in entries)


async def of(store: Store, *sharers: str, server: str | None = None) -> list[int]:
    return [await store.stored_bytes(sharer, server=server) for sharer in sharers]


async def test_each_entry_counts_for_the_principal_of_its_task_until_the_task_is_deleted(
    store: Store, clock: Clock
) -> None:
    assert await of(store, "ann", "") == [0, 0]
    large = ("created", {"arguments": "x" * 100_000})
    await store.create(task(expires=START + 1000), [large, ENTRY])
    await store.create(task("b", principal="bob"), [ENTRY])
    assert await of(store, "ann", "bob", "") == [size(large, ENTRY), size(ENTRY), size(large, ENTRY, ENTRY)]
    await store.append("a", [ENTRY, ENTRY], expect=2, phase="waiting", head={}, wakes=START + 500)
    clock.forward(0.6)
    assert await store.wake(("woken", {"é": 1})) == ["a"]
    await store.append("a", [], expect=5, phase="ended", head={"state": "done", "result": "y" * 1000})
    whole = size(large, ENTRY, ENTRY, ENTRY, ("woken", {"é": 1}))
    assert await of(store, "ann", "") == [whole, whole + size(ENTRY)]
    clock.forward(10)
    assert await of(store, "ann") == [whole], "an expired task takes space until it is deleted"
    assert len(await store.expire()) == 1
    assert await of(store, "ann", "bob", "") == [0, size(ENTRY), size(ENTRY)]


async def test_a_task_without_a_principal_counts_for_the_sharer_in_its_record(
    store: Store, clock: Clock
) -> None:
    near, far = "203.0.113.7", "2001:db8::/64"
    await store.create(task("a", principal="", sharer=near, expires=START + 1), [ENTRY, ENTRY])
    await store.create(task("b", principal="", sharer=far, phase="waiting", tags=("t",)), [ENTRY])
    await store.create(task("c", principal=""), [ENTRY])
    assert await of(store, near, far, "") == [2 * size(ENTRY), size(ENTRY), 4 * size(ENTRY)]
    assert await store.wake_tagged(["t"], ENTRY) == ["b"]
    assert await of(store, far, "") == [2 * size(ENTRY), 5 * size(ENTRY)]
    found = {record.id: record.sharer for record in (await store.list(None)).records}
    assert found == {"a": near, "b": far, "c": ""}
    claims = await store.claim("w", lease=10, limit=9)
    assert {claim.record.id: claim.record.sharer for claim in claims} == found
    record = await store.get("b")
    assert record is not None
    assert record.sharer == far
    await store.append("a", [], expect=2, phase="ended", head={})
    clock.forward(1)
    assert [record.sharer for record in await store.expire()] == [near]
    assert await of(store, near, far, "") == [0, 2 * size(ENTRY), 3 * size(ENTRY)]


async def test_tasks_that_wait_are_counted_by_sharer(store: Store) -> None:
    for n, (phase, sharer) in enumerate((("ready", "x"), ("ready", "x"), ("waiting", "x"), ("waiting", ""))):
        await store.create(task(str(n), principal="", phase=phase, sharer=sharer), [])
    await store.create(task("held", principal="", sharer="x"), [], worker="w", lease=10)
    assert await store.count_of_sharer("x", "ready", most=10) == 2
    assert await store.count_of_sharer("x", "ready", most=1) == 1
    assert await store.count_of_sharer("x", "waiting", most=10) == 1
    assert await store.count_of_sharer("y", "waiting", most=10) == 0
    await store.append("2", [], expect=0, phase="ended", head={})
    assert await store.count_of_sharer("x", "waiting", most=10) == 0
    with pytest.raises(ValueError, match="phase"):
        await store.count_of_sharer("x", "over", most=10)  # type: ignore[arg-type]


async def test_a_refused_change_counts_nothing(store: Store) -> None:
    await store.create(task(), [ENTRY])
    with pytest.raises(Stale):
        await store.create(task(), [ENTRY])
    with pytest.raises(Stale):
        await store.append("a", [ENTRY], expect=7, phase="ended", head={})
    assert await of(store, "ann", "") == [size(ENTRY)] * 2


async def test_each_server_has_its_own_bytes(store: Store) -> None:
    for n, server in enumerate(("", "one", "two")):
        await store.create(task(str(n), server=server), [ENTRY])
    assert await of(store, "ann", "", server="one") == [2 * size(ENTRY)] * 2
    assert await of(store, "ann", "") == [3 * size(ENTRY)] * 2


async def test_a_task_of_another_store_brings_its_bytes_and_its_sharer(store: Store) -> None:
    record = Record("a", "", "echo", "waiting", 2, START, START, None, {}, sharer="203.0.113.7")
    log = [Entry(n, ENTRY[0], START, ENTRY[1]) for n in (1, 2, 3)]
    assert await store.restore(record, log[:2])
    assert not await store.restore(record, log[:2])
    assert await of(store, "203.0.113.7", "") == [2 * size(ENTRY)] * 2
    assert await store.extend(record, log, token=0, expect=2, expect_token=0)
    assert await of(store, "203.0.113.7", "") == [3 * size(ENTRY)] * 2


async def test_bytes_are_there_after_the_store_is_reopened(path: Path, postgres_url: str) -> None:
    for make in (lambda: SQLiteStore(path), lambda: PostgresStore(postgres_url)):
        store: Store = make()
        await store.open()
        await store.create(task(), [ENTRY])
        await store.close()
        store = make()
        await store.open()
        assert await of(store, "ann", "") == [size(ENTRY)] * 2
        await store.close()


async def test_processes_of_earlier_versions_are_counted_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    text = rules.encode_json(ENTRY[1])
    await sqlite.create(task("new", expires=START), [ENTRY])
    connection = sqlite3.connect(path, isolation_level=None)
    for key, (id, principal) in enumerate((("old", "ann"), ("other", "")), 2):
        # As the first versions write: through the view, and without the names of the columns.
        connection.execute(
            "INSERT INTO tasks VALUES (?, ?, ?, 'a', 'ready', 1, ?, ?, NULL, 0, NULL, 0, 1, '{}')",
            (key, id, principal, START, START),
        )
        connection.execute("INSERT INTO entries VALUES (?, 1, ?, ?, 1, ?)", (key, ENTRY[0], START, text))
    key = connection.execute("SELECT key FROM tasks WHERE id = 'new'").fetchone()[0]
    connection.execute("UPDATE tasks SET version = 2, phase = 'ended' WHERE id = 'new'")
    connection.execute("INSERT INTO entries VALUES (?, 2, ?, ?, 1, ?)", (key, ENTRY[0], START, text))
    assert await of(sqlite, "ann", "") == [3 * size(ENTRY), 4 * size(ENTRY)]
    await sqlite.append("old", [ENTRY], expect=1, phase="ended", head={}, expires=START)
    assert await of(sqlite, "ann", "") == [4 * size(ENTRY), 5 * size(ENTRY)]
    assert len(await sqlite.expire()) == 2
    assert await of(sqlite, "ann", "") == [0, size(ENTRY)]
    connection.execute("DELETE FROM tasks WHERE id = 'other'")
    connection.close()
    assert await of(sqlite, "") == [0]


async def test_the_version_before_is_counted_in_postgres(postgres_url: str, clock: Clock) -> None:
    before = next(number for number, step in enumerate(migrations.scripts()) if "usages" in step)
    database = Database.from_url(postgres_url, 10.0)
    await migrations.prepare(database, migrations.scripts()[:before])
    text = rules.encode_json(ENTRY[1])
    insert = """WITH made AS (
            INSERT INTO tasks (id, principal, tool, phase, version, created, updated, token, lease, format,
                head)
            VALUES ($1, $2, 'a', 'ready', 1, $3, $3, 0, 0, 1, '{}') RETURNING key
        )
        INSERT INTO entries SELECT key, 1, $4, $3, 1, $5 FROM made"""
    store = PostgresStore(postgres_url, clock=clock, poll_interval=3600)
    async with direct_connection(postgres_url) as connection:
        await connection.execute(insert, "before", "ann", START, ENTRY[0], text)
        await store.open()
        await connection.execute(insert, "old", "ann", START, ENTRY[0], text)
        await connection.execute(insert, "other", "", START, ENTRY[0], text)
        assert await of(store, "ann", "") == [size(ENTRY), 2 * size(ENTRY)]
        await store.append("before", [ENTRY], expect=1, phase="ended", head={}, expires=START)
        await store.append("old", [ENTRY], expect=1, phase="ended", head={}, expires=START)
        assert await of(store, "ann", "") == [3 * size(ENTRY), 4 * size(ENTRY)]
        assert len(await store.expire()) == 2
        assert await of(store, "ann", "") == [0, size(ENTRY)]
        await connection.execute("DELETE FROM tasks")
    assert await of(store, "") == [0]
    await store.close()


async def test_processes_count_bytes_at_the_same_time_in_postgres(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(4)]
    for store in stores:
        await store.open()

    async def work(store: Store, name: str) -> None:
        for n in range(40):
            await store.create(task(f"{name}{n}", expires=START), [ENTRY])
            await store.append(f"{name}{n}", [ENTRY], expect=1, phase="ended", head={})

    await asyncio.gather(*(work(store, name) for store, name in zip(stores, "abcd", strict=True)))
    assert await of(stores[0], "ann", "") == [320 * size(ENTRY)] * 2
    for store in stores:
        await store.close()


async def test_sharers_without_tasks_leave_no_rows(
    postgres: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    for n in range(5):
        await postgres.create(task(f"t{n}", principal="", sharer=f"s{n}", expires=START), [ENTRY])
        await postgres.append(f"t{n}", [], expect=1, phase="ended", head={})
    await postgres.create(task("kept"), [ENTRY])
    while await postgres.expire():
        pass
    later = PostgresStore(postgres_url, clock=clock)  # adds up the slots at its first look
    await later.open()
    await later.expire()
    assert await of(later, "ann", "", "s1") == [size(ENTRY), size(ENTRY), 0]
    await later.close()
    async with direct_connection(postgres_url) as connection:
        found = await connection.fetch("SELECT sharer, slot FROM usages ORDER BY sharer")
    assert [tuple(row) for row in found] == [("", 0), ("ann", 0)]


async def test_sharers_without_tasks_leave_no_rows_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    for n in range(5):
        await sqlite.create(task(f"t{n}", principal="", sharer=f"s{n}", expires=START), [ENTRY])
        await sqlite.append(f"t{n}", [], expect=1, phase="ended", head={})
    assert len(await sqlite.expire()) == 5
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT sharer, bytes FROM usages").fetchall() == [("", 0)]
    connection.close()


async def test_stored_bytes_cost_the_same_with_many_tasks_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(principal="", sharer="s", phase="waiting"), [ENTRY])
    await of(sqlite, "s")
    reading = sqlite.opened().reader.connection
    assert reading is not None
    steps = []
    for count in (0, 20_000):
        direct = sqlite3.connect(path)
        direct.execute(
            """WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
            INSERT INTO task_rows
                (id, principal, tool, phase, version, created, updated, token, lease, format, head,
                sharer, bytes)
            SELECT 'c' || n, '', 'a', 'ended', 0, ?, ?, 0, 0, 1, '{}', 's', 10 FROM numbers WHERE n <= ?""",
            (count, START, START, count),
        )
        direct.commit()
        direct.close()
        with counted_steps(reading) as counted:
            await of(sqlite, "s", "")
            assert await sqlite.count_of_sharer("s", "waiting", most=100) == 1
        steps.append(counted[0])
    assert steps[1] <= steps[0] + 20
