"""The contract of lists with a filter."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.store import rules
from antiphon.store.contract import Record, Store, TaskFilter
from antiphon.store.list_rules import TaskList, parse_list, possible_searches
from antiphon.store.outcomes import OUTCOMES, matches
from antiphon.store.postgres import PostgresStore, migrations
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.reader import list_name
from antiphon.store.postgres.statements import list_sql
from antiphon.store.sqlite import SQLiteStore, statements
from tests.support.polling import turns

from .support import START, Clock, task
from .test_postgres import direct_connection
from .test_postgres_snapshots import max_pages

HEADS: tuple[tuple[str, Any], ...] = (
    ("ready", {"state": "working"}),
    ("waiting", {"state": "waiting"}),
    ("ended", {"state": "done", "result": {"content": [{"is_error": True}], "is_error": False}}),
    ("ended", {"state": "done", "result": {"content": [], "is_error": True}}),
    ("ended", {"state": "faulted", "message": 'a "state":"done"', "fault": {"data": {"state": "done"}}}),
    ("ended", {"state": "cancelled"}),
    ("ready", {"state": "cancelled"}),
    ("ended", {"message": "nul \0", "state": "done", "result": None}),
    ("ended", None),
)
FILTERS = (
    TaskFilter(phase="ready"),
    TaskFilter(phase="waiting"),
    TaskFilter(phase="ended"),
    TaskFilter(tool="b\0"),
    TaskFilter(tool="none"),
    TaskFilter(outcome="done"),
    TaskFilter(outcome="failed"),
    TaskFilter(outcome="cancelled"),
    TaskFilter(created_before=START + 20),
    TaskFilter(created_since=START + 20),
    TaskFilter(),
)


async def listed(
    store: Store, filter: TaskFilter | None, principal: str | None = None, **options: Any
) -> list[str]:
    """Return the ids of all tasks that a filter finds, read in small pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list(principal, cursor=cursor, limit=4, filter=filter, **options)
        found += [record.id for record in page.records]
        if (cursor := page.cursor) is None:
            return found


async def create_all(store: Store) -> list[Record]:
    """Create tasks of all kinds, some of them held by a worker; return them, newest first."""
    records: list[Record] = []
    combinations = itertools.product(HEADS, ("a", "b\0"), ("ann", "bob"))
    for n, ((phase, head), tool, principal) in enumerate(combinations):
        fields = {"phase": phase, "head": head, "tool": tool, "principal": principal}
        record = task(f"t{n}", created=START + n // 2, server="s" if n % 3 else "", **fields)
        held = "w" if phase == "ready" and n % 2 else None
        await store.create(record, [], worker=held, lease=10)
        records.insert(0, record)
    return records


async def test_a_filter_finds_the_tasks_that_match(store: Store) -> None:
    records = await create_all(store)
    for filter, principal, server in itertools.product(FILTERS, (None, "ann"), (None, "s", "")):
        expected = [
            record.id
            for record in records
            if matches(filter, record)
            and principal in (None, record.principal)
            and (server is None or record.server in ("", server))
        ]
        assert await listed(store, filter, principal, server=server) == expected, filter


async def test_a_list_can_begin_with_the_oldest(store: Store) -> None:
    records = await create_all(store)
    for filter, principal, server in itertools.product(FILTERS, (None, "ann"), (None, "s", "")):
        newest = await listed(store, filter, principal, server=server)
        assert await listed(store, filter, principal, server=server, oldest_first=True) == newest[::-1]
    bounded = TaskFilter(created_since=START + 3, created_before=START + 9)
    expected = [record.id for record in reversed(records) if matches(bounded, record)]
    assert await listed(store, bounded, oldest_first=True) == expected


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_a_list_of_all_tools_is_in_order_however_tasks_are_shared_among_them(
    store: Store, oldest_first: bool
) -> None:
    """Many of one tool and few of another, tools whose tasks are all old or all new, and equal times."""
    tools = "aaaaaaaaaabcabcabcbbbbbbbbbbacccccccccc"
    for n, tool in enumerate(tools):
        principal = "ann" if n % 3 else "bob"
        await store.create(
            task(f"t{n:02}", created=START + n // 2, tool=tool, phase="waiting", principal=principal), []
        )
    for principal in (None, "ann", "bob"):
        ids = [f"t{n:02}" for n in range(len(tools)) if principal in (None, "ann" if n % 3 else "bob")]
        found = await listed(store, TaskFilter(phase="waiting"), principal, oldest_first=oldest_first)
        assert found == (ids if oldest_first else ids[::-1])


async def test_the_cursor_of_the_other_order_is_refused(store: Store) -> None:
    for n in range(4):
        await store.create(task(f"t{n}"), [])
    for filter, oldest_first in itertools.product((None, TaskFilter(phase="ready")), (False, True)):
        page = await store.list(None, limit=2, filter=filter, oldest_first=oldest_first)
        with pytest.raises(ValueError, match="another filter or order"):
            await store.list(None, limit=2, filter=filter, oldest_first=not oldest_first, cursor=page.cursor)


async def test_filters_can_be_combined(store: Store) -> None:
    records = await create_all(store)
    for one, other in itertools.combinations(FILTERS, 2):
        fields = {**json.loads(rules.encode_json(one)), **json.loads(rules.encode_json(other))}
        both = TaskFilter(**fields)
        expected = [record.id for record in records if matches(both, record)]
        assert await listed(store, both) == expected, both


async def test_the_outcome_is_the_one_that_the_head_says(store: Store) -> None:
    records = await create_all(store)
    ended = [record.id for record in records if record.phase == "ended"]
    by_outcome = {outcome: await listed(store, TaskFilter(outcome=outcome)) for outcome in OUTCOMES}
    counts = {outcome: len(ids) for outcome, ids in by_outcome.items()}
    assert counts == {"done": 8, "failed": 8, "cancelled": 4}
    assert {id for ids in by_outcome.values() for id in ids} < set(ended)


async def test_pages_have_no_gap_and_no_repetition_while_tasks_change(store: Store, clock: Clock) -> None:
    for n in range(40):
        await store.create(task(f"t{n:02}", created=START + n // 3), [])
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list(None, cursor=cursor, limit=3, filter=TaskFilter(phase="ready"))
        found += [record.id for record in page.records]
        if (cursor := page.cursor) is None:
            break
        # Workers claim and end tasks, and new ones come, between any two pages.
        await store.claim("w", lease=10, limit=1)
        await store.append(found[-1], [], expect=0, phase="ended", head=None)
        await store.create(task(f"new{len(found)}", created=START + 99), [])
    assert found == [f"t{n:02}" for n in reversed(range(40))]


async def test_a_page_is_the_state_of_one_moment(store: Store) -> None:
    for n in range(30):
        await store.create(task(f"t{n}"), [])
    filter = TaskFilter(phase="ready")

    async def claim_all() -> None:
        for _ in range(30):
            await store.claim("w", lease=10, limit=1)

    claiming = asyncio.create_task(claim_all())
    while not claiming.done():
        await turns()
        page = await store.list(None, limit=100, filter=filter)
        assert len({record.id for record in page.records}) == len(page.records) == 30
    await claiming


async def test_the_cursor_of_another_filter_is_refused(store: Store) -> None:
    for n in range(4):
        await store.create(task(f"t{n}"), [])
    filters = (TaskFilter(phase="ready"), TaskFilter(tool="echo"), TaskFilter(created_since=START), None)
    for one, other in itertools.permutations(filters, 2):
        page = await store.list(None, limit=2, filter=one)
        assert page.cursor is not None
        with pytest.raises(ValueError, match="another filter"):
            await store.list(None, limit=2, filter=other, cursor=page.cursor)
    page = await store.list(None, limit=2, filter=TaskFilter())
    assert len((await store.list(None, cursor=page.cursor)).records) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"phase": "over"}, "phase 'over'"),
        ({"outcome": "lost"}, "outcome 'lost': use one of done, failed, cancelled"),
        ({"created_before": 2**70}, "timestamp"),
        ({"created_since": -(2**70)}, "timestamp"),
        ({"tool": "\ud800"}, "surrogates"),
    ],
)
async def test_an_invalid_filter_is_refused(store: Store, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await store.list(None, filter=TaskFilter(**fields))


async def test_a_retried_task_has_no_outcome_until_it_ends_again(store: Store) -> None:
    await store.create(task(phase="ended", head={"state": "faulted"}), [])
    assert await listed(store, TaskFilter(outcome="failed")) == ["a"]
    await store.append("a", [], expect=0, phase="ready", head={"state": "working"})
    assert await listed(store, TaskFilter(outcome="failed")) == []
    await store.append("a", [], expect=0, phase="ended", head={"state": "done"})
    assert await listed(store, TaskFilter(outcome="failed")) == []
    assert await listed(store, TaskFilter(outcome="done")) == ["a"]


# A page costs the same, however many other tasks there are. The few tasks that match are the oldest.

RARE = (
    (None, TaskFilter(tool="rare"), "tasks_of_tool"),
    (None, TaskFilter(outcome="failed"), "tasks_ended"),
    (None, TaskFilter(outcome="cancelled"), "tasks_ended"),
    (None, TaskFilter(phase="ended"), "tasks_ended"),
    (None, TaskFilter(phase="waiting"), "tasks_unfinished"),
    (None, TaskFilter(phase="waiting", tool="rare"), "tasks_unfinished"),
    (None, TaskFilter(created_before=START), "tasks_of_tool"),
    ("rare", TaskFilter(), "tasks_of_principal_on_server"),
)
COMMON = (
    (None, TaskFilter(phase="ready"), "tasks_unfinished"),
    (None, TaskFilter(created_since=START), "tasks_of_tool"),
    (None, TaskFilter(), "tasks_of_tool"),
)


async def create_rare(store: Store) -> None:
    """Create two tasks for each search, older than all others."""
    heads: list[tuple[str, Any]] = [("ended", {"state": "faulted"}), ("ended", {"state": "cancelled"})]
    for n, (phase, head) in enumerate([*heads, ("waiting", None)] * 2):
        fields = {"phase": phase, "head": head, "tool": "rare", "principal": "rare"}
        await store.create(task(f"rare{n}", created=START - 100 + n, **fields), [])


@contextmanager
def counted_steps(connection: sqlite3.Connection) -> Iterator[list[int]]:
    """Count the instructions of SQLite's machine, in hundreds."""
    steps = [0]

    def count() -> None:
        steps[0] += 1

    connection.set_progress_handler(count, 100)  # type: ignore[arg-type]
    yield steps
    connection.set_progress_handler(None, 100)


def first_page(principal: str | None, filter: TaskFilter, *, oldest_first: bool) -> TaskList:
    return parse_list(principal, cursor=None, limit=5, server=None, filter=filter, oldest_first=oldest_first)


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize(("principal", "filter", "index"), [*RARE, *COMMON])
async def test_a_page_costs_the_same_with_many_tasks_in_sqlite(
    sqlite: SQLiteStore,
    path: Path,
    principal: str | None,
    filter: TaskFilter,
    index: str,
    oldest_first: bool,
) -> None:
    await create_rare(sqlite)
    reader = sqlite.opened().reader
    await sqlite.list(None)
    connection = reader.connection
    assert connection is not None
    with counted_steps(connection) as few:
        await sqlite.list(principal, limit=5, filter=filter, oldest_first=oldest_first)
    _insert_into_sqlite(path, 20_000)
    with counted_steps(connection) as many:
        page = await sqlite.list(principal, limit=5, filter=filter, oldest_first=oldest_first)
    assert page.records
    assert many[0] <= few[0] + 20
    for search, _ in reader.searches(first_page(principal, filter, oldest_first=oldest_first)):
        query = f"EXPLAIN QUERY PLAN {statements.list_records(search, oldest_first=oldest_first)}"
        names = (
            "created",
            "key",
            "limit",
            "bound",
            "now",
            "servers",
            "tool",
            "phase",
            "outcome",
            "value",
            "principal",
        )
        plan = " ".join(row[3] for row in connection.execute(query, dict.fromkeys(names)))
        assert f"USING INDEX {'tasks_leased' if search == 'leased' else index} (" in plan
        assert ("TEMP B-TREE" in plan) == (search == "leased")


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_a_page_costs_the_same_with_many_tasks_in_postgres(
    database: Any, clock: Clock, oldest_first: bool
) -> None:
    url = database.url()
    store = PostgresStore(url, clock=clock, poll_interval=3600)
    await store.open()
    reader = store.opened().reader
    await create_rare(store)
    pages: dict[int, list[int]] = {}
    plans: list[str] = []
    cases = [*RARE, *COMMON]
    async with direct_connection(url) as connection:
        await connection.execute("SET enable_seqscan = off")  # a small table is faster to scan
        for count in (0, 20_000):
            await connection.execute(
                """INSERT INTO tasks
                    (id, principal, tool, phase, version, created, updated, token, lease, format, head)
                SELECT 'c' || n, 'common', 'common', 'ready', 0, $2::bigint + n, 0, 0, 0, 1, '{}'
                FROM generate_series(1, $1::bigint) AS n""",
                count,
                START,
            )
            await connection.execute("VACUUM ANALYZE tasks")
            for principal, filter, _ in cases:
                wanted = first_page(principal, filter, oldest_first=oldest_first)
                statement = list_sql(
                    list_name(possible_searches(wanted)[0], filter), oldest_first=oldest_first
                )
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
                plan = await connection.fetchval(explain, *reader.list_values(wanted, 6))
                pages.setdefault(count, []).append(max_pages(json.loads(plan)[0]["Plan"]))
                plans.append(plan)
    await store.close()
    for (_, _, index), plan in zip(cases, plans[len(cases) :], strict=True):
        assert f'"Index Name": "{index}"' in plan
        assert "Seq Scan" not in plan.replace("Function Scan", "")
    assert all(many <= few + 20 for few, many in zip(pages[0], pages[20_000], strict=True)), pages


async def test_a_list_of_many_tools_reads_little_more_than_it_returns_in_postgres(database: Any) -> None:
    url = database.url()
    store = PostgresStore(url, poll_interval=3600)
    await store.open()
    wanted = first_page(None, TaskFilter(phase="waiting"), oldest_first=True)
    async with direct_connection(url) as connection:
        await connection.execute("SET enable_seqscan = off")
        await connection.execute(
            """INSERT INTO tasks
                (id, principal, tool, phase, version, created, updated, token, lease, format, head)
            SELECT 'c' || n, 'ann', 'tool' || n % 20, 'waiting', 0, n, 0, 0, 0, 1, '{}'
            FROM generate_series(1, 8000) AS n"""
        )
        await connection.execute("VACUUM ANALYZE tasks")
        statement = list_sql(list_name(possible_searches(wanted)[0], wanted.filter), oldest_first=True)
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        plan = await connection.fetchval(explain, *store.opened().reader.list_values(wanted, 200))
    await store.close()
    assert max_pages(json.loads(plan)[0]["Plan"]) <= 3 * 200, "200 rows of each tool are 4,000"


async def test_a_task_that_ended_before_the_migration_has_an_outcome_in_postgres(
    database: Any, clock: Clock
) -> None:
    url = database.url()
    steps = migrations.scripts()
    before = next(number for number, step in enumerate(steps) if "tasks_set_outcome" in step)
    await migrations.prepare(Database.from_url(url, 10.0), steps[:before])
    async with direct_connection(url) as connection:
        for n, (phase, head) in enumerate(HEADS):
            await connection.execute(
                """INSERT INTO tasks
                    (id, principal, tool, phase, version, created, updated, token, lease, format, head)
                VALUES ($1, '', 'a', $2, 0, $3, 0, 0, 0, 1, $4)""",
                f"t{n}",
                phase,
                START + n,
                rules.encode_json(head),
            )
    store = PostgresStore(url, clock=clock)
    await store.open()
    assert await listed(store, TaskFilter(outcome="done")) == ["t7", "t2"]
    assert await listed(store, TaskFilter(outcome="failed")) == ["t4", "t3"]
    assert await listed(store, TaskFilter(outcome="cancelled")) == ["t5"]
    assert await listed(store, TaskFilter(phase="ended")) == ["t8", "t7", "t5", "t4", "t3", "t2"]
    await store.close()


async def test_damaged_heads_are_left_out_in_postgres(database: Any, clock: Clock) -> None:
    url = database.url()
    store = PostgresStore(url, clock=clock)
    await store.open()
    await create_all(store)
    async with direct_connection(url) as connection:
        await connection.execute("UPDATE tasks SET head = '{\"state\":' WHERE id = 't8'")
    assert "t8" not in await listed(store, TaskFilter(outcome="done"))
    assert len(await listed(store, TaskFilter(phase="ended"))) == 23
    await store.close()


async def test_damaged_heads_are_left_out_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    await create_all(sqlite)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE task_rows SET head = '{\"state\":' WHERE id = 't8'")
    connection.close()
    assert "t8" not in await listed(sqlite, TaskFilter(outcome="done"))
    found = await listed(sqlite, TaskFilter(phase="ended"))
    assert len(found) == 23
    assert "t8" not in found


async def test_a_tool_whose_name_is_damaged_is_left_out_in_sqlite(sqlite: SQLiteStore, path: Path) -> None:
    for id in "ab":
        await sqlite.create(task(id, tool=id), [])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE task_rows SET tool = CAST(x'ff' AS TEXT) WHERE id = 'a'")
    connection.close()
    assert await listed(sqlite, None) == ["b"]


def _insert_into_sqlite(path: Path, count: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(
        """WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
        INSERT INTO task_rows
            (id, principal, tool, phase, version, created, updated, token, lease, format, head)
        SELECT 'c' || n, 'common', 'common', 'ready', 0, ? + n, 0, 0, 0, 1, '{}' FROM numbers""",
        (count, START),
    )
    connection.commit()
    connection.close()
