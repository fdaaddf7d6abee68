"""The PostgreSQL store behind a connection pooler: session mode works, transaction mode is refused."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import asyncpg
import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.artifacts.postgres import PostgresArtifacts
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.database import Database
from tests.support.pooler import PGBOUNCER, pgbouncer, stand_in
from tests.support.postgres import Postgres

from .support import task

Pooler = Callable[..., AbstractAsyncContextManager[int]]


@pytest.fixture(
    params=[
        "stand_in",
        pytest.param(
            "pgbouncer", marks=pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
        ),
    ]
)
def pooler(request: pytest.FixtureRequest) -> Pooler:
    """PgBouncer if it is installed, and its stand-in."""
    return {"stand_in": stand_in, "pgbouncer": pgbouncer}[request.param]


def url(port: int) -> str:
    """Return the URL of a new schema at a port."""
    return f"postgresql://postgres@127.0.0.1:{port}/postgres?schema=t{secrets.token_hex(6)}"


async def test_a_store_works_behind_a_pooler_in_session_mode(database: Postgres, pooler: Pooler) -> None:
    async with pooler(database, shares=False) as port:
        address = url(port)
        store, other = PostgresStore(address), PostgresStore(address)
        await store.open()
        await other.open()
        async with store.watch("a") as watch:
            await other.create(task(), [("begun", 1)])
            assert await watch.wait(60)
        (claim,) = await store.claim("w", lease=60, limit=1, tools=["echo"])
        keeper = store.lease_keeper()
        assert await asyncio.to_thread(keeper.renew, [("a", claim.token)], lease=60) == {"a"}
        await asyncio.to_thread(keeper.close)
        await store.append("a", [("end", 2)], expect=1, phase="ended", head=None, token=claim.token)
        assert [entry.data for entry in await other.read("a")] == [1, 2]
        await store.close()
        await other.close()


async def test_the_settings_of_a_connection_are_made_behind_a_pooler(
    database: Postgres, pooler: Pooler
) -> None:
    async with pooler(database, shares=False) as port:
        found = Database.from_url(url(port), 3.0)
        connection = await found.connect()
        for name, value in {
            "application_name": "antiphon",
            "plan_cache_mode": "force_custom_plan",
            "enable_seqscan": "off",
            "search_path": found.schema,
            "statement_timeout": "3s",
        }.items():
            assert await connection.fetchval("SELECT current_setting($1)", name) == value
        await connection.close()


@pytest.mark.parametrize("kind", [PostgresStore, PostgresArtifacts])
async def test_a_pooler_in_transaction_mode_is_refused_at_start(
    database: Postgres, pooler: Pooler, kind: type[PostgresStore] | type[PostgresArtifacts]
) -> None:
    async with pooler(database, shares=True) as port:
        address = url(port)
        with pytest.raises(StoreUnavailable, match="transaction mode.*pool_mode = session"):
            await kind(address).open()
        # The connections of other clients keep their settings.
        connection = await asyncpg.connect(Database.from_url(address, 1.0).dsn, statement_cache_size=0)
        assert await connection.fetchval("SELECT current_setting('enable_seqscan')") == "on"
        await connection.close()
