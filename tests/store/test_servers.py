"""Servers of different names on one store: each has its own tasks, and all have those without a server."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from antiphon.store.contract import Store
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore, migrations
from antiphon.store.sqlite.database import Database

from .support import START, Clock, task
from .test_postgres_snapshots import count_pages


async def create(store: Store, **servers: str) -> None:
    """Create a ready task for each id, on the given server."""
    for n, (id, server) in enumerate(servers.items()):
        await store.create(task(id, server=server, created=START + n, updated=START + n), [("begun", 1)])


async def claimed(store: Store, **options: Any) -> list[str]:
    """Claim tasks, and return their ids."""
    return [claim.record.id for claim in await store.claim("w", lease=60, limit=10, **options)]


async def listed(store: Store, principal: str | None = "ann", **options: Any) -> list[str]:
    """Return the ids of the tasks on all pages."""
    ids, cursor = list[str](), None
    while True:
        page = await store.list(principal, cursor=cursor, limit=2, **options)
        ids += [record.id for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return ids


@pytest.mark.parametrize("tools", [None, ["echo", "other"]])
async def test_a_server_claims_its_own_tasks_and_those_without_a_server(
    store: Store, tools: list[str] | None
) -> None:
    await create(store, theirs="b", mine="a", old="")
    assert await claimed(store, tools=tools, server="a") == ["mine", "old"]
    assert await claimed(store, tools=tools, server="a") == []
    assert await claimed(store, tools=tools, server="") == []
    assert await claimed(store, tools=tools) == ["theirs"]


async def test_a_claim_of_another_server_is_taken_over_by_that_server_only(
    store: Store, clock: Clock
) -> None:
    await create(store, theirs="b")
    assert await claimed(store, tools=["echo"], server="b") == ["theirs"]
    clock.forward(61)
    assert await claimed(store, tools=["echo"], server="a") == []
    assert await claimed(store, tools=["echo"], server="b") == ["theirs"]


@pytest.mark.parametrize("principal", ["ann", None])
async def test_a_server_lists_its_own_tasks_and_those_without_a_server(
    store: Store, principal: str | None
) -> None:
    await create(store, mine="a", theirs="b", old="", newer="a", other="b")
    assert await listed(store, principal, server="a") == ["newer", "old", "mine"]
    assert await listed(store, principal, server="b") == ["other", "old", "theirs"]
    assert await listed(store, principal, server="c") == ["old"]
    assert await listed(store, principal) == ["other", "newer", "old", "theirs", "mine"]


async def test_counts_overdue_tasks_and_the_oldest_task_are_those_of_a_server(
    store: Store, clock: Clock
) -> None:
    await create(store, theirs="b", mine="a", old="", newer="a")
    for n, server in enumerate(("b", "a", "")):
        record = task(f"due{n}", phase="waiting", server=server, expires=START + n)
        await store.create(record, [])
    clock.forward(1)
    assert [await store.count("ready", server=name) for name in ("a", "b", "c", "")] == [3, 2, 1, 1]
    assert [await store.count("waiting", server=name) for name in ("a", "b", "c", "")] == [2, 2, 1, 1]
    assert (await store.count("ready"), await store.count("waiting")) == (4, 3)
    assert [record.id for record in await store.overdue(server="a")] == ["due1", "due2"]
    assert [record.id for record in await store.overdue(server="a", limit=1)] == ["due1"]
    assert [record.id for record in await store.overdue()] == ["due0", "due1", "due2"]
    assert await store.oldest_ready() == START
    assert await store.oldest_ready(server="a") == START + 1
    assert await store.oldest_ready(server="c") == START + 2
    assert await claimed(store, server="a") == ["mine", "old", "newer"]
    assert await store.count("ready", server="a") == 3  # they are running
    assert await store.oldest_ready(server="a") is None


async def test_the_server_is_in_every_record(store: Store) -> None:
    claim = await store.create(task("a", server="n\u00e4me"), [], worker="w", lease=1)
    assert claim is not None
    assert claim.record.server == "n\u00e4me"
    found = await store.get("a")
    assert found is not None
    assert found.server == "n\u00e4me"
    await store.append("a", [("x", 1)], expect=0, phase="ended", head=None, expires=START)
    assert [record.server for record in await store.expire()] == ["n\u00e4me"]


async def test_the_backlog_of_another_server_does_not_slow_claims_down_in_sqlite(
    sqlite: SQLiteStore, path: Path
) -> None:
    """The server is the first column of the index, so a claim never reads another server's entries."""
    connection = sqlite3.connect(path)
    try:
        for table, index in (
            ("SELECT key FROM task_rows WHERE phase = 'ready' AND lease = 0 AND server = '' AND tool = ''"
             " ORDER BY coalesce(turn, created), key", "tasks_free_by_turn (server=? AND tool=?)"),
            ("SELECT key FROM task_rows WHERE principal = '' AND server = '' ORDER BY created DESC, key DESC",
             "tasks_of_principal_on_server (principal=? AND server=?)"),
        ):  # fmt: skip
            (plan,) = connection.execute(f"EXPLAIN QUERY PLAN {table}").fetchall()
            assert index in plan[3]
    finally:
        connection.close()


async def test_the_backlog_of_another_server_does_not_slow_claims_down_in_postgres(
    database: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(database.url(), clock=clock, poll_interval=3600)
    await store.open()
    await create(store, first="a")
    await claimed(store, tools=["echo"], server="a")
    with count_pages(store, monkeypatch) as before:
        await create(store, second="a")
        await claimed(store, tools=["echo"], server="a")
    for n in range(3000):
        record = task(f"t{n}", server="b", created=START - n)
        store.opened().writing.submit(_creation(record))  # without waiting, so that they share commits
    await create(store, third="a")
    store.opened().writer.claimer.limits_by_queues.clear()  # type: ignore[union-attr]
    with count_pages(store, monkeypatch) as after:
        assert await claimed(store, tools=["echo"], server="a") == ["third"]
    assert after["Claims"] <= 2 * before["Claims"] + 30
    await store.close()


def _creation(record: Any) -> Any:
    from antiphon.store import rules
    from antiphon.store.postgres.writer import Create

    return Create(rules.new_row(record, 0, held=False), [], None, 0)


# The statements of the version before, which must work on the schema of this one.

INSERT = "INSERT INTO tasks SELECT * FROM (VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)) WHERE column1 IS NOT NULL"
UPDATE = """
    WITH fresh (key, phase, version, updated, expires, token, worker, lease, head)
        AS (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))
    UPDATE tasks SET phase = fresh.phase, version = fresh.version, updated = fresh.updated,
        expires = fresh.expires, token = fresh.token, worker = fresh.worker, lease = fresh.lease,
        head = coalesce(fresh.head, tasks.head)
    FROM fresh WHERE tasks.key = fresh.key
"""
END_LEASES = """
    UPDATE tasks SET lease = 0 WHERE key IN (
        SELECT key FROM tasks WHERE lease > 0 AND lease <= ? ORDER BY lease LIMIT 1000)
"""
CLAIMABLE = """
    SELECT json_group_array(id) FROM (
        SELECT * FROM tasks WHERE phase = 'ready' AND lease = 0 AND tool = 'echo'
        ORDER BY created, key LIMIT 9)
"""


async def test_the_version_before_works_on_a_file_of_this_one(
    sqlite: SQLiteStore, path: Path, clock: Clock
) -> None:
    await create(sqlite, named="a")
    old = sqlite3.connect(path, isolation_level=None)
    try:
        (last,) = old.execute("SELECT max(key) FROM tasks").fetchone()
        row = (last + 1, "old", "ann", "echo", "ready", 1, START, START, None, 1, "w", START + 5, 1, "{}")
        old.execute(INSERT, row)
        old.execute("INSERT INTO entries VALUES (?, 1, 'begun', 0, 1, '2')", (last + 1,))
        old.execute(END_LEASES, (START + 9,))
        assert old.execute(CLAIMABLE).fetchone() == ('["named","old"]',)
        # It claims the task of a server, and ends it: the task keeps its server.
        old.execute(UPDATE, (last, "ended", 2, START, START + 1000, 2, None, 0, '{"n": 1}'))
    finally:
        old.close()
    record = await sqlite.get("named")
    assert record is not None
    assert (record.server, record.phase, record.version, record.head) == ("a", "ended", 2, {"n": 1})
    assert await claimed(sqlite, server="b") == ["old"]
    assert [entry.data for entry in await sqlite.read("old")] == [2]
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("DELETE FROM tasks WHERE key IN (?, ?)", (last, None))
    old.close()
    assert await sqlite.get("named") is None


async def test_tasks_of_schema_3_belong_to_every_server(path: Path, clock: Clock) -> None:
    database = Database(str(path), 1.0)
    connection = database.connect("write")
    migrations.migrate(database, connection, migrations.scripts()[:3])
    row = (1, "old", "ann", "echo", "ready", 0, START, START, None, 0, None, 0, 1, "null")
    connection.execute(INSERT, row)
    connection.close()
    store = SQLiteStore(path, clock=clock)
    await store.open()
    assert await listed(store, server="a") == await listed(store, server="b") == ["old"]
    assert await claimed(store, server="b", tools=["echo"]) == ["old"]
    await store.close()
