"""The PostgreSQL store beyond the contract: shared commits, the database's clock, migrations, URLs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from antiphon.errors import Stale, StoreUnavailable
from antiphon.store import open_store
from antiphon.store.contract import Store
from antiphon.store.postgres import PostgresStore, migrations, statements, writer
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import Database
from tests.support.polling import turns, until
from tests.support.postgres import Postgres

from .support import START, Clock, task

PREVIOUS = Path(__file__).with_name("postgres_1")
VALUES_BEFORE: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {
    "write": lambda values: (*values[:13], *values[14:20], *values[23:30]),
    "claim": lambda values: values[:4],
    "list_all": lambda values: values[:4],
    "list_by_principal": lambda values: values[:5],
    "release": lambda values: (*values[1:3], *values[4:]),
    "expire": lambda values: values[:6],
}
"""The values that the version before passed to a statement, from the values of this version."""


@pytest.fixture
def url(database: Postgres) -> str:
    """The URL of a new schema."""
    return database.url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store that uses the clock of the database."""
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


@asynccontextmanager
async def direct_connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that the store does not know of."""
    database = Database.from_url(url, 10.0)
    connection = await asyncpg.connect(database.dsn, server_settings={"search_path": database.schema})
    try:
        yield connection
    finally:
        await connection.close()


async def end_connections(connection: asyncpg.Connection, store: PostgresStore) -> None:
    """End all connections of stores, and wait until this store has noticed that its writing one is lost."""
    writing = await store.opened().writer.connection.connect()
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'antiphon' AND pid <> pg_backend_pid()"
    )
    await until(writing.is_closed)


async def number(url: str, query: str, *values: Any) -> int:
    """Return one number, read directly from the database."""
    async with direct_connection(url) as connection:
        return int(await connection.fetchval(query, *values))


async def test_concurrent_operations_share_statements_and_commits(store: PostgresStore) -> None:
    await asyncio.gather(*(store.create(task(f"t{n}"), [("begun", n)]) for n in range(200)))
    commits, sent = store.commits, store.statements
    for version in range(1, 6):
        await asyncio.gather(
            *(store.append(f"t{n}", [("x", n)], expect=version, phase="ready", head=n) for n in range(200))
        )
    assert store.commits - commits <= 10
    assert store.statements - sent <= 20
    before = store.statements
    await asyncio.gather(*(read(f"t{n}") for read in (store.get, store.read) for n in range(200)))
    assert store.statements - before <= 6


async def test_many_tasks_are_claimed_by_one_statement(store: PostgresStore) -> None:
    await asyncio.gather(*(store.create(task(f"t{n}"), []) for n in range(100)))
    before = store.statements
    assert len(await store.claim("w", lease=10, limit=100)) == 100
    assert store.statements - before <= 2  # a second one may record the turns, as one does each second


async def test_operations_without_changes_write_nothing(store: PostgresStore, url: str) -> None:
    await store.create(task(phase="waiting"), [])
    query = "SELECT pg_current_xact_id()::text::bigint"
    before = await number(url, query)
    assert await store.claim("w", lease=1, limit=10) == []
    assert list(await store.expire()) == []
    assert await store.renew([("a", 1), ("b", 2**70)], lease=1) == set()
    with pytest.raises(Stale):
        await store.append("a", [("x", 1)], expect=2**70, phase="ready", head=None)
    assert await number(url, query) - before == 1


async def until_polled(store: PostgresStore) -> None:
    """Wait until a store has looked for changes of other processes, from now on."""
    listener = store.opened().listener
    before = listener.statements
    await until(lambda: listener.statements >= before + 4)  # each poll sends two


async def test_a_lost_notification_delays_a_change_by_one_poll(url: str) -> None:
    store, other = PostgresStore(url, poll_interval=0.05), PostgresStore(url)
    await store.open()
    await other.open()
    await other.create(task(phase="waiting"), [])
    async with store.watch("a") as watch, store.watch_ready() as ready, store.subscribe("news") as messages:
        await store.opened().listener.connection.fetch("UNLISTEN *")
        await until_polled(store)  # from then on, it knows what was there before
        assert not await ready.wait(0)
        while await watch.wait(0):
            pass
        await other.append("a", [("x", 1)], expect=0, phase="waiting", head=None)
        assert await watch.wait(60)
        await other.create(task("b"), [])
        assert await ready.wait(60)
        await other.publish("news", "late")
        async with asyncio.timeout(60):
            assert await anext(messages) == "late"
    await store.close()
    await other.close()


async def test_messages_arrive_once_even_with_frequent_polls(url: str) -> None:
    store, other = PostgresStore(url, poll_interval=0.01), PostgresStore(url)
    await store.open()
    await other.open()
    got: list[Any] = []

    async def receive() -> None:
        async with store.subscribe("news") as messages:
            async for message in messages:
                got.append(message)

    receiving = asyncio.create_task(receive())
    await turns()
    for n in range(30):
        await other.publish("news", n)
        if n % 3 == 0:
            await until_polled(store)
    await store.publish("news", "own")
    await until(lambda: len(got) >= 31)
    await until_polled(store)
    await store.close()
    await receiving
    assert sorted(got, key=str) == sorted([*range(30), "own"], key=str)
    await other.close()


async def test_a_statement_that_asyncpg_does_not_send_runs_on_a_new_connection(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that ends is refused for new statements before it counts as closed."""
    await store.create(task(), [])
    ending = await store.opened().writer.connection.connect()

    async def refuse(*given: Any) -> Any:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    end = type(ending).terminate

    def mend(self: Any) -> None:
        monkeypatch.undo()
        end(self)

    monkeypatch.setattr(type(ending), "fetch", refuse)
    monkeypatch.setattr(type(ending), "terminate", mend)
    assert await store.append("a", [("x", 1)], expect=0, phase="ready", head=1) == 1


async def test_a_lost_connection_is_replaced_without_a_failed_operation(
    store: PostgresStore, url: str
) -> None:
    await store.create(task(), [])
    await store.get("a")
    async with direct_connection(url) as connection, store.watch("a") as watch:
        for version in range(3):
            await end_connections(connection, store)
            assert await store.append("a", [("x", 1)], expect=version, phase="ready", head=1) == version + 1
            assert (await store.get("a")) is not None
        while await watch.wait(0):
            pass
        other = open_store(url)
        await other.open()
        versions = itertools.count(3)

        async def has_fired() -> bool:
            await other.append("a", [("x", 1)], expect=next(versions), phase="ready", head=1)
            return await watch.wait(0)

        await until(has_fired)  # the store listens again by itself
        await other.close()


async def test_a_slow_statement_times_out(url: str) -> None:
    store = PostgresStore(url, timeout=59)
    await store.open()
    await store.create(task(), [])
    writing = await store.opened().writer.connection.connect()
    assert await writing.fetchval("SHOW statement_timeout") == "59s"
    async with direct_connection(url) as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM tasks WHERE id = 'a' FOR UPDATE")
            await writing.execute("SET statement_timeout = '0.1s'")
            with pytest.raises(StoreUnavailable, match="try again"):
                await store.append("a", [("x", 1)], expect=0, phase="ready", head=None)
            assert await store.get("a") is not None  # reads continue meanwhile
        assert await store.append("a", [("x", 1)], expect=0, phase="ready", head=None) == 1
    await store.close()


async def test_batches_that_deadlock_are_retried(store: PostgresStore, url: str) -> None:
    ids = [f"t{n}" for n in range(40)]
    await asyncio.gather(*(store.create(task(id), []) for id in ids))
    other = PostgresStore(url)
    await other.open()

    async def write(through: Store, order: list[str]) -> int:
        async def one(id: str) -> bool:
            try:
                await through.append(id, [("x", 1)], expect=0, phase="ready", head=None)
            except Stale:
                return False
            return True

        return sum(await asyncio.gather(*map(one, order)))

    won = await asyncio.gather(write(store, ids), write(other, ids[::-1]))
    assert sum(won) == len(ids)
    await other.close()


# Schemas


async def test_concurrent_opens_of_an_empty_database_create_one_schema(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await number(url, "SELECT count(*) FROM schema_versions") == len(migrations.scripts())
    for store in stores:
        await store.close()


async def flow(store: Store, id: str) -> None:
    """Run the operations that every version must support on every schema."""
    await store.create(task(id, expires=START * 2), [("begun", 1)])
    (claim,) = [claim for claim in await store.claim("w", lease=60, limit=10) if claim.record.id == id]
    await store.append(id, [("x", 2)], expect=1, phase="waiting", head={"n": 2}, token=claim.token)
    await store.append(id, [("y", 3)], expect=2, phase="ready", head={"n": 3})
    (claim,) = [claim for claim in await store.claim("w", lease=60, limit=10) if claim.record.id == id]
    assert await store.renew([(id, claim.token)], lease=60) == {id}
    await store.append(id, [("z", 4)], expect=3, phase="ended", head=None, token=claim.token)
    assert [entry.data for entry in await store.read(id)] == [1, 2, 3, 4]
    assert id in [record.id for record in (await store.list("ann")).records]
    assert await store.use_once(f"key of {id}", until=START * 2)
    assert list(await store.expire()) == []


@pytest.fixture
def previous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the statements of the version before, which was released with the first schema."""

    def old(name: str) -> str:
        path = PREVIOUS / f"{name}.sql"
        return path.read_text(encoding="utf-8") if path.exists() else statements.sql(name)

    for module in ("writer", "claimer", "expirer", "reader", "change_listener"):
        monkeypatch.setattr(f"antiphon.store.postgres.{module}.sql", old)
    values_by_statement = {old(name): values for name, values in VALUES_BEFORE.items()}
    fetch = ReconnectingConnection.fetch

    async def old_fetch(
        connection: ReconnectingConnection, statement: str, *values: Any, retry: bool = False
    ) -> list[Any]:
        if statement in values_by_statement:
            values = values_by_statement[statement](values)
        rows = await fetch(connection, statement, *values, retry=retry)
        if statement == old("expire") and not rows:
            return [{"key": None, "now": 0}]  # the row that this version expects
        if statement == old("renew"):
            return [{**row, "is_stopping": False} for row in rows]  # that version stopped no worker
        # The records of that version have no server and no turn, and its claims no time.
        missing = {"server": "", "turn": None, "now": 0}
        return [{**row, **missing} if "head" in row.keys() else row for row in rows]  # noqa: SIM118

    monkeypatch.setattr(ReconnectingConnection, "fetch", old_fetch)


@pytest.mark.usefixtures("previous")
async def test_the_version_before_works_on_the_schema_of_this_one(url: str) -> None:
    await migrations.prepare(Database.from_url(url, 10.0), migrations.scripts()[:1])
    assert await number(url, "SELECT max(version) FROM schema_versions") == 1
    await migrations.prepare(Database.from_url(url, 10.0))  # during an upgrade
    old = PostgresStore(url)
    await old.open()
    assert writer.sql("write") == (PREVIOUS / "write.sql").read_text(encoding="utf-8")
    await flow(old, "old")
    await old.close()


async def test_this_version_works_beside_the_next_one(store: PostgresStore, url: str) -> None:
    await flow(store, "before")
    steps = [
        *migrations.scripts(),
        "ALTER TABLE tasks ADD COLUMN note text; ALTER TABLE entries ADD COLUMN size bigint DEFAULT 0;"
        "CREATE INDEX tasks_noted ON tasks (note); CREATE TABLE extra (x integer);",
    ]
    await migrations.prepare(Database.from_url(url, 10.0), steps)
    await flow(store, "beside")
    late = PostgresStore(url)
    await late.open()
    await flow(late, "after")
    await late.close()
    assert await number(url, "SELECT max(version) FROM schema_versions") == len(steps)


async def test_a_migration_does_not_hold_up_others_behind_a_long_transaction(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "TABLE_LOCK_SECONDS", 1)
    before = migrations.scripts()[:2]
    await migrations.prepare(Database.from_url(url, 10.0), before)
    async with direct_connection(url) as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM tasks")  # as pg_dump reads
            with pytest.raises(StoreUnavailable, match="pg_dump.*try again when it has ended"):
                await PostgresStore(url).open()
        assert await connection.fetchval("SELECT max(version) FROM schema_versions") == len(before)
    store = PostgresStore(url)
    await store.open()
    await store.close()


async def test_a_schema_that_this_version_cannot_work_with_is_refused_and_left_alone(url: str) -> None:
    newer = len(migrations.scripts()) + 1
    steps = [*migrations.scripts(), "ALTER TABLE tasks RENAME TO works"]
    await migrations.prepare(Database.from_url(url, 10.0), steps, oldest=newer)
    with pytest.raises(StoreUnavailable, match=f"schema {newer}.*install a newer"):
        await PostgresStore(url).open()


async def test_a_migration_that_fails_changes_nothing(store: PostgresStore, url: str) -> None:
    steps = [*migrations.scripts(), "CREATE TABLE extra (x integer); SELECT nonsense"]
    with pytest.raises(StoreUnavailable, match="nonsense"):
        await migrations.prepare(Database.from_url(url, 10.0), steps)
    assert await number(url, "SELECT max(version) FROM schema_versions") == len(migrations.scripts())
    assert await number(url, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('extra')") == 0


async def test_the_schema_of_another_program_is_refused_and_left_alone(url: str) -> None:
    schema = Database.from_url(url, 10.0).schema
    async with direct_connection(url) as connection:
        await connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.tasks (theirs integer)")
    with pytest.raises(StoreUnavailable, match="another program"):
        await PostgresStore(url).open()


async def test_entries_of_a_newer_format_are_refused(store: PostgresStore, url: str) -> None:
    await store.create(task("a"), [("x", 1)])
    await store.create(task("b"), [("x", 1)])
    async with direct_connection(url) as connection:
        await connection.execute(
            "UPDATE entries SET format = 2 WHERE task = (SELECT key FROM tasks WHERE id = 'a')"
        )
    results = await asyncio.gather(store.read("a"), store.read("b"), return_exceptions=True)
    assert isinstance(results[0], StoreUnavailable)
    assert "newer" in str(results[0])
    assert [entry.data for entry in results[1]] == [1]  # type: ignore[union-attr]


# URLs and databases


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "cannot be reached"),
        ("postgresql://{place}/there_is_none", "createdb"),
    ],
)
async def test_an_unreachable_database_is_explained_without_the_password(
    database: Postgres, url: str, words: str
) -> None:
    place = f"postgres:secret@127.0.0.1:{database.port}"
    with pytest.raises(StoreUnavailable, match=words) as raised:
        await PostgresStore(url.format(place=place)).open()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["postgresql:db", "postgresql://h/db?schema=a-b", "postgresql://h/db?schema=A"]
)
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "dsn", "schema", "display_url"),
    [
        ("postgresql://a:b@h:5/d", "postgresql://a:b@h:5/d", "antiphon", "postgresql://a@h:5/d"),
        ("postgresql:///d?host=/run/pg", "postgresql:///d?host=/run/pg", "antiphon", "postgresql:///d"),
        (
            "postgresql://a:@/d?schema=x&sslmode=require",
            "postgresql://a:@/d?sslmode=require",
            "x",
            "postgresql://a@/d",
        ),
    ],
)
def test_a_url_is_split_into_dsn_and_schema(url: str, dsn: str, schema: str, display_url: str) -> None:
    found = Database.from_url(url, 1.0)
    assert (found.dsn, found.schema, found.display_url) == (dsn, schema, display_url)


async def test_expired_keys_are_deleted(url: str, clock: Clock) -> None:
    store = PostgresStore(url, clock=clock)
    await store.open()
    for n in range(60):
        await store.use_once(f"k{n}", until=START + 10 * n)
        clock.forward(0.01)
    await store.close()
    assert await number(url, "SELECT count(*) FROM used") <= 2


async def test_a_long_log_is_deleted_whole(url: str, clock: Clock) -> None:
    store = PostgresStore(url, clock=clock)
    await store.open()
    for id in "ab":
        await store.create(task(id, phase="ended", expires=START + 1), [("x", n) for n in range(6000)])
    clock.forward(1)
    assert len(await store.expire()) == 2
    await store.close()
    assert await number(url, "SELECT count(*) FROM entries") == 0
