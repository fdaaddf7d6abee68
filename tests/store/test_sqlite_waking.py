"""Waiting tasks and events in an SQLite file: their cost, and processes of earlier versions beside this one.

The cost of a statement is the number of instructions that SQLite executes for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store import rules
from antiphon.store.sqlite import SQLiteStore, statements
from antiphon.store.sqlite.batch import Batch
from antiphon.store.sqlite.message_retention import MessageRetention
from antiphon.store.unreadable import UnreadableRecords

from .support import START, Clock, number, task
from .test_servers import UPDATE
from .test_waking import WOKEN, park, record_of, tagged

DAY = 86_400_000
UPDATE_OF_SCHEMA_4 = """
    WITH fresh (key, phase, version, updated, expires, token, worker, lease, head)
        AS (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))
    UPDATE task_rows SET phase = fresh.phase, version = fresh.version, updated = fresh.updated,
        expires = fresh.expires, token = fresh.token, worker = fresh.worker, lease = fresh.lease,
        head = coalesce(fresh.head, task_rows.head)
    FROM fresh WHERE task_rows.key = fresh.key
"""
"""The statement with which a process of schema 4 changes a task."""


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of another process."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def add_waiting_tasks(connection: sqlite3.Connection, count: int, **fields: Any) -> None:
    """Add tasks that wake tomorrow, without the time that a store takes for each."""
    batch = Batch(connection, START, START, UnreadableRecords("x"))
    connection.execute("BEGIN")
    batch.load(["none"])
    for n in range(count):
        values = {"phase": "waiting", "wakes": START + DAY + n, "server": "here"} | fields
        batch.create(rules.new_row(task(f"w{n}", **values), 0, held=False), [], None, 0)
    batch.finish("origin", MessageRetention())
    connection.execute("COMMIT")


def instructions(connection: sqlite3.Connection, query: str, values: dict[str, Any]) -> int:
    """Return the number of instructions of a query."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    connection.set_progress_handler(step, 1)
    connection.execute(query, values).fetchall()
    connection.set_progress_handler(None, 1)
    return count


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (statements.HAS_DUE_TASK, {"server": "here", "now": START}),
        (statements.DUE_TASKS, {"server": "here", "now": START, "limit": 100}),
        (statements.WAKING_SERVERS, {}),
        (statements.TAGGED_TASKS, {"tag": "rare", "created": 0, "key": 0, "limit": 10}),
        (statements.tagged_records(), {"tag": "common", "created": 0, "key": 0, "limit": 10}),
    ],
    ids=["check", "search", "servers", "rare tag", "page"],
)
async def test_the_cost_does_not_grow_with_the_tasks(
    sqlite: SQLiteStore, path: Path, query: str, values: dict[str, Any]
) -> None:
    await park(sqlite, "rare", tags=["rare"], server="here")
    with connected(path) as connection:
        add_waiting_tasks(connection, 100, tags=("common",))
        before = instructions(connection, query, values)
        connection.execute("UPDATE task_rows SET id = 'first ' || id WHERE id LIKE 'w%'")
        add_waiting_tasks(connection, 20_000, tags=("common",))
        assert instructions(connection, query, values) <= before + 20


async def test_a_store_without_due_tasks_is_not_written(sqlite: SQLiteStore, clock: Clock) -> None:
    await park(sqlite, wakes=5)
    before = sqlite.commits
    for _ in range(3):
        assert await sqlite.wake(WOKEN, server="here") == await sqlite.wake(WOKEN) == []
    assert sqlite.commits == before


async def test_the_index_of_waking_tasks_costs_other_tasks_nothing(sqlite: SQLiteStore, path: Path) -> None:
    with connected(path) as connection:

        def opens_index(statement: str, values: int) -> bool:
            root = "SELECT rootpage FROM sqlite_schema WHERE name = 'tasks_waking_on_server'"
            (page,) = connection.execute(root).fetchone()
            plan = connection.execute(f"EXPLAIN {statement}", [None] * values).fetchall()
            return any((name, root) == ("OpenWrite", page) for _, name, _, root, *_ in plan)

        assert opens_index(statements.update_waits(1), 3)
        assert not opens_index(statements.update_tasks(1), 12)


@pytest.mark.parametrize("schema", [3, 4])
async def test_a_process_of_an_earlier_version_ends_the_wait(
    sqlite: SQLiteStore, path: Path, clock: Clock, schema: int
) -> None:
    for id in ("answered", "ended", "asked"):
        await park(sqlite, id, wakes=5, tags=["x"])
    update = UPDATE if schema == 3 else UPDATE_OF_SCHEMA_4
    with connected(path) as old:
        keys = dict(old.execute("SELECT id, key FROM tasks"))
        for id, phase in {"answered": "ready", "ended": "ended", "asked": "waiting"}.items():
            old.execute(update, (keys[id], phase, 2, START, None, 0, None, 0, "{}"))
        old.execute("UPDATE counts SET tasks = 1")
    for id in ("answered", "ended"):
        record = await record_of(sqlite, id)
        assert (record.wakes, record.tags) == (None, ())
    assert await tagged(sqlite, "x") == [["asked"]]
    clock.forward(5)
    assert list(await sqlite.wake(WOKEN)) == ["asked"]
    assert await sqlite.wake_tagged(["x"], WOKEN) == []
    assert number(path, "SELECT count(*) FROM task_rows WHERE wakes IS NOT NULL OR tags IS NOT NULL") == 0
    assert number(path, "SELECT count(*) FROM task_tags") == 0
    assert [await sqlite.count(phase) for phase in ("ready", "waiting", "ended")] == [2, 0, 1]  # type: ignore[arg-type]


async def test_nothing_is_left_of_tasks_and_events(sqlite: SQLiteStore, path: Path, clock: Clock) -> None:
    await park(sqlite, wakes=5, tags=["x", "y"])
    await sqlite.append("a", [], expect=2, phase="ended", head=1, expires=START + 1000)
    await sqlite.add_event("t", "e", 1, until=START + 1000)
    clock.forward(2)
    assert len(await sqlite.expire()) == 1
    for table in ("task_rows", "task_tags", "entries", "events"):
        assert number(path, f"SELECT count(*) FROM {table}") == 0


async def test_a_damaged_event_does_not_hide_the_others(
    sqlite: SQLiteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("first", "bad", "last"):
        await sqlite.add_event("t", id, id, until=START + DAY)
    with connected(path) as connection:
        connection.execute("UPDATE events SET data = '{\"a\":' WHERE id = 'bad'")
    for _ in range(2):
        assert [event.id for event in await sqlite.read_events("t")] == ["first", "last"]
    assert caplog.text.count("Skipping event 'bad'") == 1


async def test_damaged_tags_do_not_hide_the_other_tasks(
    sqlite: SQLiteStore, path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("first", "bad", "last"):
        await park(sqlite, id, wakes=5, tags=["x"])
    with connected(path) as connection:
        connection.execute("UPDATE task_rows SET tags = '[\"x' WHERE id = 'bad'")
    assert await tagged(sqlite, "x") == [["first", "last"]]
    assert caplog.text.count("Skipping task 'bad'") == 1
    clock.forward(5)
    assert list(await sqlite.wake(WOKEN)) == ["first", "bad", "last"]
    assert (await record_of(sqlite, "bad")).phase == "ready"
    assert number(path, "SELECT count(*) FROM task_tags") == 0


async def test_a_wake_that_cannot_be_written_is_made_up_for(path: Path, clock: Clock) -> None:
    store = SQLiteStore(path, clock=clock, busy_timeout=0.05)
    await store.open()
    await park(store, wakes=0, tags=["x"])
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        for wake in (store.wake(WOKEN), store.wake_tagged(["x"], WOKEN)):
            with pytest.raises(StoreUnavailable):
                await wake
        with pytest.raises(StoreUnavailable):
            await store.add_event("t", "e", 1, until=START + DAY)
        other.execute("COMMIT")
    assert (await record_of(store)).version == 2
    assert list(await store.wake(WOKEN)) == ["a"]
    assert await store.add_event("t", "e", 1, until=START + DAY)
    await store.close()
