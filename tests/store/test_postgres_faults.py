"""Errors of PostgreSQL: each is explained, affects only the operation that caused it, and is survived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from antiphon.errors import Stale, StoreUnavailable
from antiphon.store.postgres import PostgresStore, database, migrations, writer
from antiphon.store.postgres.batcher import Job
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.statements import sql
from tests.support.polling import turns, until
from tests.support.postgres import Postgres

from .support import Clock, task
from .test_postgres import direct_connection


@pytest.fixture
def url(database: Postgres) -> str:
    """The URL of a new schema."""
    return database.url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store that uses the clock of the database, and listens but does not poll."""
    opened = PostgresStore(url, poll_interval=3600)
    await opened.open()
    yield opened
    await opened.close()


def writer_of(store: PostgresStore) -> writer.Writer:
    """Return the writer of an open store."""
    return store.opened().writer


def fail_statements(
    monkeypatch: pytest.MonkeyPatch, store: PostgresStore, error: Exception, times: int
) -> list[str]:
    """Let the next writing statements fail with an error; return the list of statements sent afterwards."""
    fetch, errors = writer_of(store).connection.fetch, [error] * times
    sent: list[str] = []

    async def failing(statement: str, *values: Any, retry: bool = False) -> list[Any]:
        if errors:
            raise errors.pop()
        sent.append(statement)
        return await fetch(statement, *values, retry=retry)

    monkeypatch.setattr(writer_of(store).connection, "fetch", failing)
    return sent


@pytest.mark.parametrize("kind", [asyncpg.DeadlockDetectedError, asyncpg.SerializationError])
async def test_a_deadlock_is_retried(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    sent = fail_statements(monkeypatch, store, kind("aborted"), times=4)
    await store.create(task(), [("x", 1)])
    assert sent[-1] == sql("write")
    assert sent.count(sql("write")) == 1
    assert await store.get("a") == task(version=1)


async def test_retries_are_limited(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = fail_statements(monkeypatch, store, asyncpg.DeadlockDetectedError("aborted"), times=5)
    with pytest.raises(StoreUnavailable, match="cannot be written: aborted"):
        await store.create(task(), [("x", 1)])
    assert sent == []
    await store.create(task(), [("x", 1)])


async def test_only_the_invalid_operation_of_a_batch_fails(store: PostgresStore) -> None:
    notes = [writer.UseOnce("a", 2**62), writer.UseOnce("b", 2**70), writer.UseOnce("c", 2**62)]
    results = await asyncio.gather(*map(store.opened().writing.submit, notes), return_exceptions=True)
    assert [type(result) for result in results] == [bool, ValueError, bool]
    assert "cannot store a value" in str(results[1])
    assert not await store.use_once("a", until=2**62)


async def test_a_full_disk_is_explained(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_statements(monkeypatch, store, asyncpg.DiskFullError("no space left"), times=1)
    results = await asyncio.gather(*(store.create(task(id), []) for id in "ab"), return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    assert "Free some space" in str(results[0])
    await store.create(task(), [])


async def test_a_refused_append_that_is_allowed_by_now_is_stale(store: PostgresStore) -> None:
    await store.create(task(), [])
    refused: Job[Any] = Job(
        writer.Append("a", [], 0, "ready", "null", None), asyncio.get_running_loop().create_future()
    )
    await writer_of(store).explain_refusals([refused])
    with pytest.raises(Stale, match="was writing"):
        await refused.future


# Claims of cancelled callers


async def test_claims_of_a_cancelled_caller_are_released(store: PostgresStore, url: str) -> None:
    await store.create(task(), [])
    async with direct_connection(url) as connection, connection.transaction():
        await connection.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
        claiming = asyncio.create_task(store.claim("gone", lease=1000, limit=1))
        await turns()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
    async with store.watch_ready() as ready:
        while not (claims := await store.claim("w", lease=1, limit=1)):
            assert await ready.wait(60)
    assert [claim.record.id for claim in claims] == ["a"]


async def test_a_failed_claim_of_a_cancelled_caller_is_ignored(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(task(), [])
    fail_statements(monkeypatch, store, asyncpg.DiskFullError("no space left"), times=1)
    claiming = asyncio.create_task(store.claim("gone", lease=1000, limit=1))
    await turns()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    (claim,) = await store.claim("w", lease=1, limit=1)
    assert claim.record.id == "a"


async def test_a_claim_cancelled_while_closing_lasts_until_its_lease_ends(url: str, clock: Clock) -> None:
    store = PostgresStore(url, clock=clock)
    await store.open()
    await store.create(task(), [])
    claiming = asyncio.create_task(store.claim("gone", lease=100, limit=1))
    await turns()
    claiming.cancel()
    await store.close()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await store.open()
    assert await store.claim("w", lease=1, limit=1) == []
    clock.forward(101)
    assert len(await store.claim("w", lease=1, limit=1)) == 1
    await store.close()


# Probing


async def test_a_probe_of_a_database_that_accepts_no_writes_fails(store: PostgresStore) -> None:
    await store.probe()
    connection = await writer_of(store).connection.connect()
    await connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="read-only: name the primary"):
        await store.probe()
    assert await store.get("a") is None  # reads go on
    await connection.execute("SET default_transaction_read_only = off")
    await store.probe()


async def test_probes_add_one_row(store: PostgresStore, url: str) -> None:
    for _ in range(3):
        await store.probe()
    async with direct_connection(url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM used") == 1
    assert await store.use_once("probe", until=2**62)


# Watching


async def test_tasks_that_are_no_longer_watched_are_dropped(store: PostgresStore, url: str) -> None:
    other = PostgresStore(url)
    await other.open()
    await other.create(task(), [])
    async with store.watch("a") as watch:
        for number in range(1500):
            store.watch(f"t{number}")
        assert len(store.opened().listener.id_by_digest) <= 1100
        await other.append("a", [("x", 1)], expect=0, phase="ready", head=None)
        assert await watch.wait(60)
    await other.close()


# Opening and closing


async def test_opening_an_open_store_does_nothing(store: PostgresStore) -> None:
    await store.create(task(), [])
    parts = store.opened()
    await store.open()
    assert store.opened() is parts


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), asyncpg.InternalServerError("gone")])
async def test_a_store_that_cannot_listen_closes_its_connections(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made: list[asyncpg.Connection] = []
    connect = Database.connect

    async def connected(database: Database) -> asyncpg.Connection:
        made.append(await connect(database))
        return made[-1]

    async def lost(*_: object) -> None:
        raise error

    monkeypatch.setattr(Database, "connect", connected)
    monkeypatch.setattr(asyncpg.Connection, "add_listener", lost)
    late = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match="cannot be reached: gone"):
        await late.open()
    assert len(made) == 2
    assert all(connection.is_closed() for connection in made)


async def test_an_empty_table_of_versions_means_no_schema(url: str) -> None:
    schema = Database.from_url(url, 10.0).schema
    async with direct_connection(url) as connection:
        await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(migrations.CREATE_VERSIONS_TABLE)
    store = PostgresStore(url)
    await store.open()
    await store.create(task(), [])
    await store.close()
    async with direct_connection(url) as connection:
        assert await connection.fetchval("SELECT max(version) FROM schema_versions") == len(
            migrations.scripts()
        )


async def test_a_database_that_is_too_old_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MIN_POSTGRES_VERSION", 1000)
    with pytest.raises(StoreUnavailable, match=r"is too old: install PostgreSQL 1000 or later"):
        await PostgresStore(url).open()


async def test_a_url_that_asyncpg_cannot_parse_is_explained() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await PostgresStore("postgresql://a@h:port/d").open()


async def test_a_cancelled_statement_drops_its_connection(url: str) -> None:
    found = ReconnectingConnection(Database.from_url(url, 10.0))
    first = await found.connect()
    sleeping = asyncio.create_task(found.fetch("SELECT pg_sleep(60)"))
    await until(lambda: found.statements)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert first.is_closed()
    assert [tuple(row) for row in await found.fetch("SELECT 1")] == [(1,)]
    await found.close()


@pytest.mark.parametrize(("retry", "tries"), [(False, 1), (True, 2)])
async def test_a_statement_with_retry_runs_once_more_on_a_new_connection(
    url: str, retry: bool, tries: int
) -> None:
    found = ReconnectingConnection(Database.from_url(url, 10.0))
    with pytest.raises(StoreUnavailable, match="try again"):
        await found.fetch("SELECT pg_terminate_backend(pg_backend_pid())", retry=retry)
    assert found.statements == tries
    assert [tuple(row) for row in await found.fetch("SELECT 1")] == [(1,)]
    await found.close()
