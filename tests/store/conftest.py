"""The stores on which the contract is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from tests.support.postgres import Postgres

from .support import Clock

DELETE_ALL = "TRUNCATE counts, entries, events, messages, tallies, task_tags, tasks, turns, usages, used"


@pytest.fixture(scope="session")
def contract_url(database: Postgres) -> str:
    """The URL of the schema that the tests of the contract share: making one costs more than such a test."""
    return database.url()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, clock: Clock, path: Path) -> AsyncIterator[Store]:
    """Each kind of store, open. In PostgreSQL, it does not poll: a poll may fire a watch once more."""
    opened: Store
    if request.param == "memory":
        opened = MemoryStore(clock=clock)
    elif request.param == "sqlite":
        opened = SQLiteStore(path, clock=clock)
    else:
        opened = PostgresStore(request.getfixturevalue("contract_url"), clock=clock, poll_interval=3600)
    await opened.open()
    if isinstance(opened, PostgresStore):
        await opened.opened().writer.connection.fetch(DELETE_ALL)
    yield opened
    await opened.close()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> str:
    """The URL of a new schema."""
    return str(request.getfixturevalue("database").url())


@pytest.fixture
async def postgres(clock: Clock, postgres_url: str) -> AsyncIterator[PostgresStore]:
    """An open PostgreSQL store that does not poll."""
    opened = PostgresStore(postgres_url, clock=clock, poll_interval=3600)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite(clock: Clock, path: Path) -> AsyncIterator[SQLiteStore]:
    """An open SQLite store."""
    opened = SQLiteStore(path, clock=clock)
    await opened.open()
    yield opened
    await opened.close()
