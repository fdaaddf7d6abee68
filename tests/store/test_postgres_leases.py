"""Leases in PostgreSQL: they follow the clock of the database, and a thread can renew them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.connection import ReconnectingConnection
from tests.support.postgres import Postgres

from .support import task
from .test_postgres import direct_connection

DAY = 86_400.0


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


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of this process jump."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(seconds * 1e9))


async def seconds_left(url: str, id: str = "a") -> float:
    """Return the seconds until a lease ends, by the clock of the database."""
    async with direct_connection(url) as connection:
        return float(
            await connection.fetchval(
                "SELECT lease / 1000.0 - extract(epoch FROM clock_timestamp()) FROM tasks WHERE id = $1", id
            )
        )


@pytest.mark.parametrize("seconds", [DAY, -DAY])
async def test_a_jump_of_a_workers_clock_neither_shortens_nor_extends_its_leases(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    await store.create(task(), [])
    await store.claim("w", lease=60, limit=1, tools=["echo"])
    jump(monkeypatch, seconds)
    assert 0 < await seconds_left(url) <= 60
    assert await store.claim("w", lease=60, limit=9, tools=["echo"]) == []
    assert await store.renew([("a", 1)], lease=100) == {"a"}
    assert 60 < await seconds_left(url) <= 100
    keeper = store.lease_keeper()
    assert await asyncio.to_thread(keeper.renew, [("a", 1)], lease=200) == {"a"}
    await asyncio.to_thread(keeper.close)
    assert 100 < await seconds_left(url) <= 200
    await store.release("a", 1, delay=30)
    assert 0 < await seconds_left(url) <= 30
    assert await store.claim("w", lease=60, limit=9, tools=["echo"]) == []
    await store.create(task("b"), [], worker="w", lease=60)
    assert 0 < await seconds_left(url, "b") <= 60


@pytest.mark.parametrize("seconds", [DAY, -DAY])
async def test_a_jump_of_another_workers_clock_takes_no_task_and_loses_none(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    other = PostgresStore(url)
    await other.open()
    await store.create(task("held"), [])
    (held,) = await store.claim("one", lease=60, limit=1)
    await store.create(task("lost"), [], worker="one", lease=0)
    await store.create(task("ended", phase="ended", expires=int(time.time() * 1000) + 3_600_000), [])
    jump(monkeypatch, seconds)
    claims = await other.claim("two", lease=60, limit=9, tools=["echo"])
    assert [claim.record.id for claim in claims] == ["lost"]
    assert list(await other.expire()) == []
    monkeypatch.undo()
    assert await store.renew([("held", held.token)], lease=60) == {"held"}
    assert await store.claim("one", lease=60, limit=9, tools=["echo"]) == []
    await other.close()


# The lease keeper


async def test_a_lease_keeper_retries_a_deadlock(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(task(), [], worker="w", lease=60)
    fetch, errors = ReconnectingConnection.fetch, [asyncpg.DeadlockDetectedError("aborted")] * 4

    async def failing(self: ReconnectingConnection, statement: str, *values: Any, retry: bool = False) -> Any:
        if errors:
            raise errors.pop()
        return await fetch(self, statement, *values, retry=retry)

    keeper = store.lease_keeper()
    with monkeypatch.context() as patch:
        patch.setattr(ReconnectingConnection, "fetch", failing)
        assert keeper.renew([("a", 1)], lease=60) == {"a"}
        errors.extend([asyncpg.DeadlockDetectedError("aborted")] * 5)
        with pytest.raises(StoreUnavailable, match="cannot be written: aborted"):
            keeper.renew([("a", 1)], lease=60)
        errors[:] = [asyncpg.DiskFullError("no space left")]  # type: ignore[list-item]
        with pytest.raises(StoreUnavailable, match="Free some space"):
            keeper.renew([("a", 1)], lease=60)
    keeper.close()


async def test_a_lease_keeper_replaces_a_lost_connection(store: PostgresStore, url: str) -> None:
    await store.create(task(), [], worker="w", lease=60)
    keeper = store.lease_keeper()
    assert keeper.renew([("a", 1)], lease=60) == {"a"}
    async with direct_connection(url) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'antiphon' AND pid <> pg_backend_pid()"
        )
    assert keeper.renew([("a", 1)], lease=60) == {"a"}
    keeper.close()


async def test_a_closed_lease_keeper_is_refused(store: PostgresStore) -> None:
    used, unused = store.lease_keeper(), store.lease_keeper()
    await store.create(task(), [], worker="w", lease=60)
    assert used.renew([("a", 1)], lease=60) == {"a"}
    for keeper in (used, unused):
        keeper.close()
        keeper.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            keeper.renew([("a", 1)], lease=60)


async def test_a_store_that_is_not_open_has_no_lease_keeper(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="not open"):
        PostgresStore(url).lease_keeper()
