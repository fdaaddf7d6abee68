"""Unwritable and unreadable SQLite files: clear errors, no lost writes, and recovery afterwards."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.sqlite import SQLiteStore

from .processes import all_reports, child
from .support import content, task, write

LARGE = "y" * 2000


async def fill(store: SQLiteStore) -> tuple[int, str]:
    """Create tasks until one is refused; return the number of tasks and the error message."""
    for n in range(10_000):
        try:
            await store.create(task(f"t{n}"), [("x", LARGE)])
        except StoreUnavailable as error:
            return n, str(error)
    raise AssertionError("the store never got full")


async def check(store: SQLiteStore, count: int) -> None:
    """Check that the store has exactly this many tasks with complete logs."""
    assert await store.count("ready") == count
    assert await store.get(f"t{count}") is None
    for n in range(count):
        assert [entry.data for entry in await store.read(f"t{n}")] == [LARGE]


async def test_a_store_does_not_grow_beyond_its_size_limit(path: Path) -> None:
    store = SQLiteStore(path, max_bytes=400_000)
    await store.open()
    count, message = await fill(store)
    assert count > 20
    assert "full" in message
    assert "Free some space" in message
    with pytest.raises(StoreUnavailable, match=r"full.*max_bytes"):
        await store.probe()
    await check(store, count)
    await store.close()
    larger = SQLiteStore(path, max_bytes=800_000)
    await larger.open()
    await larger.create(task(f"t{count}"), [("x", LARGE)])
    await larger.probe()
    await check(larger, count + 1)
    await larger.close()


async def test_operations_that_share_a_failed_commit_all_fail(path: Path) -> None:
    store = SQLiteStore(path, max_bytes=400_000)
    await store.open()
    count, _ = await fill(store)
    results = await asyncio.gather(
        *(store.create(task(f"u{n}"), [("x", LARGE)]) for n in range(20)), return_exceptions=True
    )
    assert {type(result) for result in results} == {StoreUnavailable}
    await check(store, count)
    await store.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = Path(tempfile.mkdtemp())
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    ).returncode:
        folder.rmdir()
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)
    folder.rmdir()


async def test_a_full_disk_loses_nothing_and_writes_succeed_once_there_is_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    store = SQLiteStore(small_disk / "store.db")
    await store.open()
    count, message = await fill(store)
    assert count > 5
    assert "cannot be written" in message
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await store.probe()
    await check(store, count)
    ballast.unlink()
    await store.probe()
    await store.create(task(f"t{count}"), [("x", LARGE)])
    await check(store, count + 1)
    await store.close()


async def test_a_file_size_limit_of_the_process_loses_nothing(path: Path) -> None:
    async with child("fill", path) as other:
        full, probe, read, again = await all_reports(other)
        assert await other.wait() == 0
    assert full[0] == "full"
    assert full[1] > 5
    assert "cannot be written" in full[2]
    assert probe[0] == "probe"
    assert "cannot be written" in probe[1]
    assert read == ["read", True]
    assert again == ["again", full[1] + 1]


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user may read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def make_read_only(*paths: Path) -> None:
    """Make files and directories read-only."""
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)


async def test_a_read_only_file_is_refused_at_once(public: Path) -> None:
    path = public / "store.db"
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [("x", 1)])
    await store.close()
    make_read_only(path, public)
    async with child("unprivileged", path) as other:
        ((message,),) = await all_reports(other)
    assert "cannot be opened" in message
    assert "writ" in message


async def test_a_directory_that_may_not_be_written_is_refused_at_once(public: Path) -> None:
    make_read_only(public)
    async with child("unprivileged", public / "new.db") as other:
        ((message,),) = await all_reports(other)
    assert "this user may write to it" in message


async def test_writes_succeed_again_after_a_file_was_read_only(sqlite: SQLiteStore) -> None:
    await sqlite.create(task("a"), [("x", 1)])
    threads = sqlite.opened()
    assert threads.writer.connection is not None
    threads.writer.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match=r"writable for this user.*No acknowledged write is lost"):
        await sqlite.create(task("b"), [("x", 1)])
    assert await sqlite.get("a") == task("a", version=1)
    await sqlite.create(task("b"), [("x", 1)])
    assert await sqlite.count("ready") == 2


async def test_a_file_that_is_not_a_database_is_refused(path: Path) -> None:
    diary = b"Dear diary, today I was not a database. " * 200
    write(path, diary)
    with pytest.raises(StoreUnavailable, match="not an SQLite database"):
        await SQLiteStore(path).open()
    assert content(path) == diary


def damage(path: Path, page: int) -> None:
    """Overwrite a file from a page on. Page 0 holds the header."""
    with path.open("r+b") as file:
        file.seek(4096 * page)
        file.write(b"\xff" * (path.stat().st_size - 4096 * page))


async def test_a_damaged_file_is_an_error_for_its_users_only(path: Path, tmp_path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await asyncio.gather(*(store.create(task(f"t{n}"), [("x", LARGE)]) for n in range(200)))
    await store.close()
    damage(path, page=40)
    await store.open()
    results = await asyncio.gather(*(store.read(f"t{n}") for n in range(200)), return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    assert {type(error) for error in failed} == {StoreUnavailable}
    assert "damaged" in str(failed[0])
    assert [entry.data for log in results if not isinstance(log, BaseException) for entry in log] == [
        LARGE
    ] * (200 - len(failed))
    await store.close()
    damage(path, page=1)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.open()
    other = SQLiteStore(tmp_path / "other.db")
    await other.open()
    await other.create(task(), [])
    await other.close()


async def test_a_missing_table_is_an_error_until_it_is_restored(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [("x", 1)])
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE entries RENAME TO hidden")
    connection.commit()
    with pytest.raises(StoreUnavailable, match="no such table"):
        await sqlite.append("a", [("x", 2)], expect=1, phase="ready", head=None)
    with pytest.raises(StoreUnavailable, match="no such table"):
        await sqlite.read("a")
    connection.execute("ALTER TABLE hidden RENAME TO entries")
    connection.commit()
    connection.close()
    assert await sqlite.append("a", [("x", 2)], expect=1, phase="ready", head=None) == 2
    assert [entry.data for entry in await sqlite.read("a")] == [1, 2]
