"""The space of deleted tasks is given back, and the write-ahead log does not stay large."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts.sqlite import SQLiteArtifacts
from antiphon.store.sqlite import SQLiteStore, free_space
from antiphon.store.sqlite.database import Database

from .support import START, Clock, number, task

MEGABYTE = 1024 * 1024


def log_size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def fill(store: SQLiteStore, megabytes: int) -> None:
    """Create tasks of one megabyte each."""
    for n in range(megabytes):
        entries = [("x", "y" * 104_000)] * 10
        await store.create(task(f"t{n}", phase="ended", expires=START + 1000), entries)


async def shrink(store: SQLiteStore) -> None:
    """Call `expire` as often as a worker would, until there is nothing left to do."""
    for _ in range(20):
        await store.expire()


async def test_a_file_becomes_small_again_after_its_tasks_have_expired(
    sqlite: SQLiteStore, path: Path, clock: Clock
) -> None:
    await sqlite.create(task("kept"), [("x", "y" * 1000)] * 100)
    await fill(sqlite, 12)
    clock.forward(1)
    await shrink(sqlite)
    await sqlite.close()
    assert path.stat().st_size < 5 * MEGABYTE
    await sqlite.open()
    assert [entry.data for entry in await sqlite.read("kept")] == ["y" * 1000] * 100
    assert await sqlite.count("ended") == 0
    assert number(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") == 0


async def test_the_file_itself_shrinks_while_it_is_open(
    sqlite: SQLiteStore, path: Path, clock: Clock
) -> None:
    await fill(sqlite, 20)
    assert path.stat().st_size > 10 * MEGABYTE
    clock.forward(1)
    await shrink(sqlite)
    assert path.stat().st_size < 10 * MEGABYTE


async def test_one_call_releases_a_bounded_number_of_pages(
    sqlite: SQLiteStore, path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "MAX_PORTIONS", 2)
    await fill(sqlite, 12)
    clock.forward(1)
    before = number(path, "PRAGMA page_count")
    await sqlite.expire()
    assert number(path, "PRAGMA page_count") >= before - 2 * 512 - 10


async def test_expire_succeeds_although_the_space_cannot_be_given_back_now(
    sqlite: SQLiteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(database: Database) -> None:
        raise sqlite3.OperationalError("database is locked")

    await fill(sqlite, 12)
    clock.forward(1)
    monkeypatch.setattr("antiphon.store.sqlite.store.release_free_pages", fail)
    assert len(await sqlite.expire()) == 12


async def test_a_little_free_space_is_kept_for_new_tasks(
    sqlite: SQLiteStore, path: Path, clock: Clock
) -> None:
    await fill(sqlite, 3)
    clock.forward(1)
    before = number(path, "PRAGMA page_count")
    await shrink(sqlite)
    assert number(path, "PRAGMA page_count") == before


def make_file_of_an_earlier_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")  # creates the file, without room for releasing pages
    connection.close()


async def test_a_file_of_an_earlier_version_is_rewritten_once_on_request(path: Path, clock: Clock) -> None:
    make_file_of_an_earlier_version(path)
    store = SQLiteStore(path, clock=clock)
    await store.open()
    await store.create(task("kept"), [("x", "y" * 1000)] * 100)
    await fill(store, 12)
    clock.forward(1)
    large = number(path, "PRAGMA page_count")
    await shrink(store)
    assert number(path, "PRAGMA page_count") == large
    await store.compact()
    assert number(path, "PRAGMA page_count") < large / 10
    assert number(path, "PRAGMA auto_vacuum") == 2
    assert len(await store.read("kept")) == 100
    await store.probe()
    await store.close()


async def test_compacting_a_file_that_another_process_writes_says_so(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=0.0)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="write lock"):
        await store.compact()
    other.execute("ROLLBACK")
    other.close()
    await store.close()


async def test_the_space_of_deleted_artifacts_is_given_back(path: Path) -> None:
    artifacts = SQLiteArtifacts(str(path))
    await artifacts.open()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(12):
            yield bytes(MEGABYTE)

    record = ArtifactRecord("a", "ann", "Photo", "blob", "image/png", START, START + 1000)
    await artifacts.put(record, pieces(), max_bytes=100 * MEGABYTE)
    large = number(path, "PRAGMA page_count")
    for _ in range(10):
        await artifacts.sweep(now=START + 2000, max_total_bytes=100 * MEGABYTE)
    assert number(path, "PRAGMA page_count") < large / 2
    await artifacts.close()


async def test_the_log_is_cut_after_a_long_read_let_it_grow(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task("kept"), [])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tasks").fetchone()  # from now on, the log cannot start again
    await fill(sqlite, 40)
    assert log_size(path) > 36 * MEGABYTE
    reader.execute("COMMIT")
    reader.close()
    for version in range(20):
        await sqlite.append("kept", [("x", "y" * 500_000)], expect=version, phase="ready", head=None)
    assert log_size(path) <= 32 * MEGABYTE


def test_writers_keep_a_bounded_log(tmp_path: Path) -> None:
    connection = Database(str(tmp_path / "new.db"), 1.0).connect("write")
    assert connection.execute("PRAGMA journal_size_limit").fetchone() == (32 * MEGABYTE,)
    connection.close()
