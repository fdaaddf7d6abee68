"""Helpers for the tests of stores: a clock that the test moves, and records of tasks."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from typing import Any

from antiphon.store.contract import Record, Store, Watch
from tests.support.polling import until

START = 1_800_000_000_000
"""The first time of the tests' clock, in milliseconds."""


class Clock:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now / 1000

    def forward(self, seconds: float) -> None:
        self.now += int(seconds * 1000)

    def back(self, seconds: float) -> None:
        self.forward(-seconds)


def task(id: str = "a", **fields: Any) -> Record:
    """Return the record of a ready task, changed by the given fields."""
    values: dict[str, Any] = {
        "id": id,
        "principal": "ann",
        "tool": "echo",
        "phase": "ready",
        "version": 0,
        "created": START,
        "updated": START,
        "expires": None,
        "head": {"status": "working"},
    }
    return Record(**(values | fields))


async def is_quiet(store: Store, watch: Watch) -> bool:
    """Return whether a watch has not fired, after a later change of another task fired its watch."""
    id = f"later-{secrets.token_hex(4)}"
    async with store.watch(id) as later:
        await store.create(task(id, phase="ended"), [])
        assert await later.wait(60)
    return not await watch.wait(0)


async def until_blocked(connection: Any) -> None:
    """Wait until another connection of PostgreSQL waits for a lock that the transaction of this one holds."""
    query = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    await until(lambda: connection.fetchval(query))


def content(path: Path) -> bytes:
    """Return the content of a file."""
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    """Write a file."""
    path.write_bytes(content)


def number(path: Path, query: str) -> int:
    """Return the number that a query of an SQLite file finds."""
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()
