from __future__ import annotations

from pathlib import Path

import pytest

from antiphon import wall_clock
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from tests.waiting.support import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(wall_clock, "ahead", 0.0)  # as it is again after the test
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several servers share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return str(request.getfixturevalue("database").url())


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Store:
    """A store whose time the test moves. In PostgreSQL, leases end too when it jumps."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return SQLiteStore(tmp_path / "tasks.db")
    return PostgresStore(request.getfixturevalue("database").url(), clock=clock)
