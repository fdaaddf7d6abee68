"""The stores that the contract is tested on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore

from .support import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, clock: Clock, path: Path) -> AsyncIterator[Store]:
    """Each store in turn, open."""
    kept: Store
    if request.param == "memory":
        kept = MemoryStore(clock=clock)
    elif request.param == "sqlite":
        kept = SQLiteStore(path, clock=clock)
    else:
        kept = PostgresStore(request.getfixturevalue("database").url(), clock=clock)
    await kept.open()
    yield kept
    await kept.close()


@pytest.fixture
async def sqlite(clock: Clock, path: Path) -> AsyncIterator[SQLiteStore]:
    """A SQLite store, open."""
    kept = SQLiteStore(path, clock=clock)
    await kept.open()
    yield kept
    await kept.close()
