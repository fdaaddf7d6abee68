"""Waiting tasks and events in PostgreSQL: their cost, and other processes beside this one.

The cost of a statement is the number of pages that it reads, as PostgreSQL counts them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import asyncpg
import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres import PostgresStore, waker
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.statements import sql
from antiphon.store.postgres.writer import Append

from .support import START, Clock, task, until_blocked
from .test_postgres import PREVIOUS, direct_connection
from .test_postgres_faults import fail_statements
from .test_postgres_snapshots import count_pages, max_pages, open_snapshot
from .test_waking import WOKEN, park, record_of, tagged

DAY = 86_400_000
INSERT_WAITING = """
    INSERT INTO tasks (
        id, principal, tool, phase, version, created, updated, token, lease, format, head, server, wakes, tags
    )
    SELECT $1::text || n, 'ann', 'echo', 'waiting', 0, n, 0, 0, 0, 1, '1', 'here', $2::bigint + n, $3::text
    FROM generate_series(1, $4::integer) AS n
"""


async def pages(postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch, action: Any) -> int:
    """Return the pages that the writing statements of an action read."""
    with count_pages(postgres, monkeypatch) as counted:
        await action()
    return counted.total()


@pytest.mark.parametrize("server", ["here", None])
async def test_the_cost_of_a_wake_does_not_grow_with_the_tasks(
    postgres: PostgresStore,
    clock: Clock,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    server: str | None,
) -> None:
    async def cost() -> Counter[str]:
        """Return the pages of the cheapest of some wakes: in others, a full page of an index is split."""
        counted = []
        for _ in range(3):
            await park(
                postgres, f"t{clock.now}", wakes=(clock.now - START) // 1000, server="here", tags=["rare"]
            )
            with count_pages(postgres, monkeypatch) as pages:
                assert len(await postgres.wake(WOKEN, server=server)) == 1
                assert await postgres.wake_tagged(["rare"], WOKEN) == []
            counted.append(+Counter({kind: pages[kind] for kind in ("Finds", "Makes")}))
            clock.forward(1)
        return counted[0] & counted[1] & counted[2]

    # With either number of tasks, the indexes are two pages deep. Without the index of waking tasks, of
    # queued tasks, of tags, or of the tags of a task, the second cost is more than twice the first.
    async with direct_connection(postgres_url) as connection:
        await connection.execute(INSERT_WAITING, "few", START + DAY, '["common"]', 2_000)
        before = await cost()
        await connection.execute(INSERT_WAITING, "many", START + DAY, '["common"]', 20_000)
        after = await cost()
    assert set(after) == set(before) == ({"Finds", "Makes"} if server else {"Makes"})
    assert all(2 * after[kind] <= 3 * before[kind] for kind in after), (before, after)


async def test_a_page_of_tagged_tasks_reads_no_other_tasks(
    postgres: PostgresStore, postgres_url: str
) -> None:
    async with direct_connection(postgres_url) as connection:
        await connection.execute(INSERT_WAITING, "many", START + DAY, '["common"]', 20_000)
        await connection.execute("SET enable_seqscan = off")
        explain = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) "
        values = (-DAY, 0, 11, ["common"])
        (found,) = await connection.fetchrow(explain + sql("list_tagged"), *values)
    assert max_pages(json.loads(found)[0]["Plan"]) <= 60
    page = await postgres.list_tagged(["common"], limit=10)
    assert [record.created for record in page.records] == list(range(1, 11))


async def test_an_open_transaction_does_not_make_wakes_expensive(
    postgres: PostgresStore, clock: Clock, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wake() -> None:
        assert await postgres.wake(WOKEN, server="here") == []
        await postgres.add_event("t", f"{clock.now}", 1, until=clock.now + 5000)
        await postgres.expire()

    async with open_snapshot(postgres_url), direct_connection(postgres_url) as connection:
        await wake()
        before = await pages(postgres, monkeypatch, wake)
        await connection.execute(INSERT_WAITING, "many", clock.now, None, 5000)
        for n in range(10):
            await asyncio.gather(
                *(postgres.add_event("t", f"{n}-{m}", 1, until=clock.now + 5000) for m in range(100))
            )
        clock.forward(10)
        assert len(await postgres.wake(WOKEN, server="here", limit=10_000)) == 5000
        for _ in range(3):
            clock.forward(60)
            await wake()
        assert await pages(postgres, monkeypatch, wake) <= 2 * before + 30


async def test_a_search_from_the_start_finds_a_task_that_others_restored(
    postgres: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    clock.forward(3600)
    assert await postgres.wake(WOKEN, server="here") == []
    async with direct_connection(postgres_url) as connection:
        await connection.execute(INSERT_WAITING, "restored", START, None, 1)
    assert await postgres.wake(WOKEN, server="here") == []
    limits = postgres.opened().writer.waker.limits
    limits[("", "here")] = limits[("", "here")]._replace(full_search_at=0.0)
    assert list(await postgres.wake(WOKEN, server="here")) == ["restored1"]


async def test_a_statement_that_takes_long_hides_no_task(
    postgres: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    # Another process begins to write before this one searches, and commits after it.
    async with direct_connection(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(INSERT_WAITING, "slow", clock.now - 1, None, 1)
        clock.forward(waker.SLACK_MILLISECONDS / 1000 - 1)
        assert await postgres.wake(WOKEN, server="here") == []
        await transaction.commit()
    assert list(await postgres.wake(WOKEN, server="here")) == ["slow1"]


async def test_a_task_that_others_hold_for_long_wakes_when_they_give_it_up(
    postgres: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    await park(postgres, "held", wakes=1, server="here")
    await park(postgres, "other", wakes=1, server="here")
    clock.forward(2)
    async with direct_connection(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM tasks WHERE id = 'held' FOR UPDATE")
        assert list(await postgres.wake(WOKEN, server="here")) == ["other"]
        for _ in range(3):
            clock.forward(30)
            assert await postgres.wake(WOKEN, server="here") == []
        await transaction.rollback()
    assert list(await postgres.wake(WOKEN, server="here")) == ["held"]


async def test_a_wake_by_tag_waits_for_a_task_that_others_are_changing(
    postgres: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    for id in ("kept", "answered"):
        await park(postgres, id, tags=["x"])
    async with direct_connection(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE tasks SET head = '2' WHERE id = 'kept'")
        await connection.execute("UPDATE tasks SET phase = 'ready' WHERE id = 'answered'")
        waking = asyncio.create_task(postgres.wake_tagged(["x"], WOKEN))  # type: ignore[arg-type]
        await until_blocked(connection)
        await transaction.commit()
    assert list(await waking) == ["kept"]


async def test_the_version_before_ends_the_wait(
    postgres: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    phases = {"answered": "ready", "ended": "ended", "asked": "waiting"}
    for id in phases:
        await park(postgres, id, wakes=5, tags=["x"])
    update = "UPDATE tasks SET was = phase, phase = $2, head = '{}' WHERE id = $1"
    async with direct_connection(postgres_url) as connection:
        for id, phase in phases.items():
            await connection.execute(update, id, phase)
        await connection.execute(
            "INSERT INTO counts VALUES (9, 'ready', 1), (9, 'waiting', -2), (9, 'ended', 1)"
        )
    assert "wakes" not in (PREVIOUS / "write.sql").read_text(encoding="utf-8")
    for id in ("answered", "ended"):
        record = await record_of(postgres, id)
        assert (record.wakes, record.tags) == (None, ())
    assert await tagged(postgres, "x") == [["asked"]]
    clock.forward(5)
    assert list(await postgres.wake(WOKEN)) == ["asked"]
    async with direct_connection(postgres_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM task_tags") == 0
    assert [await postgres.count(phase) for phase in ("ready", "waiting", "ended")] == [2, 0, 1]  # type: ignore[arg-type]


async def test_a_task_whose_id_is_in_use_leaves_no_tags(postgres: PostgresStore, postgres_url: str) -> None:
    await postgres.create(task(), [])
    with pytest.raises(Exception, match="in use"):
        await postgres.create(task(phase="waiting", tags=("x",)), [])
    async with direct_connection(postgres_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM task_tags") == 0


async def test_tags_topics_and_ids_may_be_longer_than_an_index_allows(postgres: PostgresStore) -> None:
    long = ["".join(chr(33 + (n * n * seed) % 90) for n in range(9000)) for seed in (7, 11)]
    await park(postgres, "a", tags=long[:1])
    await park(postgres, "b", tags=long)
    assert await tagged(postgres, long[0]) == [["a", "b"]]
    assert await tagged(postgres, long[1]) == [["b"]]
    assert (await record_of(postgres, "b")).tags == tuple(long)
    for topic in long:
        for id in long:
            assert await postgres.add_event(topic, id, 1, until=START + DAY)
            assert not await postgres.add_event(topic, id, 1, until=START + DAY)
        assert [event.id for event in await postgres.read_events(topic)] == long


@pytest.mark.parametrize("number", [None, START * 3000])
async def test_an_event_never_becomes_readable_after_a_later_one(
    postgres: PostgresStore, postgres_url: str, number: int | None
) -> None:
    # Another process has a number for its event, maybe ahead of the clock, and has not committed yet. The
    # next event has to wait, and its number has to be larger although its statement began before the commit.
    other = PostgresStore(postgres_url)
    await other.open()
    schema = Database.from_url(postgres_url, 10.0).schema
    values = (None, 1, ["t"], ["first"], ["first"], [START * 2], ["1"], schema, [None], [number], [None])
    async with direct_connection(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(sql("add_events"), *values)
        adding = asyncio.create_task(other.add_event("t", "second", 2, until=START * 2))  # type: ignore[arg-type]
        assert await postgres.add_event("another topic", "third", 3, until=START * 2)
        await until_blocked(connection)
        assert not adding.done()
        assert await postgres.read_events("t") == []
        await transaction.commit()
    assert await adding
    assert [event.id for event in await postgres.read_events("t")] == ["first", "second"]
    await other.close()


async def test_a_damaged_event_does_not_hide_the_others(
    postgres: PostgresStore, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("first", "bad", "last"):
        await postgres.add_event("t", id, id, until=START + DAY)
    async with direct_connection(postgres_url) as connection:
        await connection.execute("UPDATE events SET data = '{\"a\":' WHERE id = 'bad'")
    for _ in range(2):
        assert [event.id for event in await postgres.read_events("t")] == ["first", "last"]
    assert caplog.text.count("Skipping event 'bad'") == 1


async def test_damaged_tags_do_not_hide_the_other_tasks(
    postgres: PostgresStore, postgres_url: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("first", "bad", "last"):
        await park(postgres, id, wakes=5, tags=["x"])
    async with direct_connection(postgres_url) as connection:
        await connection.execute("UPDATE tasks SET tags = '[\"x\", 1]' WHERE id = 'bad'")
    assert await tagged(postgres, "x") == [["first", "last"]]
    assert caplog.text.count("Skipping task 'bad'") == 1
    with pytest.raises(StoreUnavailable, match="'bad' cannot be read"):
        await postgres.get("bad")
    clock.forward(5)
    assert list(await postgres.wake(WOKEN)) == ["first", "bad", "last"]
    assert (await record_of(postgres, "bad")).phase == "ready"


async def test_other_tasks_are_written_without_arrays_for_waits(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, sent = postgres.opened().writer.connection, []
    fetch = connection.fetch

    async def noting(statement: str, *values: Any, retry: bool = False) -> list[Any]:
        if statement == sql("write"):
            sent.append(values[30:34])
        return await fetch(statement, *values, retry=retry)

    monkeypatch.setattr(connection, "fetch", noting)
    await postgres.create(task(), [])
    await postgres.append("a", [], expect=0, phase="waiting", head=1)
    assert sent == [([], [], [], [])] * 2
    assert Append("a", [], 0, "waiting", "1", None).tags is None


async def test_a_deadlock_is_retried(
    postgres: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await park(postgres, "a", wakes=0)
    await park(postgres, "b", tags=["x"])
    for wake, id in ((postgres.wake(WOKEN), "a"), (postgres.wake_tagged(["x"], WOKEN), "b")):
        with monkeypatch.context() as patch:
            fail_statements(patch, postgres, asyncpg.DeadlockDetectedError("aborted"), times=2)
            assert list(await wake) == [id]


async def test_a_connection_that_is_lost_after_the_commit_repeats_nothing(
    postgres: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await park(postgres, wakes=0)
    connection = postgres.opened().writer.connection
    fetch = connection.fetch

    async def losing(statement: str, *values: Any, retry: bool = False) -> list[Any]:
        await fetch(statement, *values, retry=retry)
        raise StoreUnavailable("The connection was lost.")

    for call in (
        lambda: postgres.wake(WOKEN),
        lambda: postgres.add_event("t", "e", 1, until=START + DAY),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(connection, "fetch", losing)
            with pytest.raises(StoreUnavailable, match="lost"):
                await call()
        assert not await call()
    assert (await record_of(postgres)).version == 3
    assert len(await postgres.read_events("t")) == 1
