"""Opening SQLite stores: by URL, with every earlier schema, and files of other programs."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store import open_store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SQLiteStore, migrations
from antiphon.store.sqlite.clock import MachineClock
from antiphon.store.sqlite.database import Database

from .support import Clock, content, number, task

HERE = Path(__file__).parent


def version(path: Path) -> int:
    """Return the schema of a file."""
    return number(path, "SELECT max(version) FROM schema_versions")


def oldest(path: Path) -> int:
    """Return the oldest schema whose processes can use a file."""
    return number(path, "PRAGMA user_version")


async def test_a_url_names_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory:"), MemoryStore)
    for location in ("a/b.db", f"{tmp_path}/c.db"):
        store = open_store(f"sqlite:///{location}")
        assert isinstance(store, SQLiteStore)
        await store.open()
        assert (tmp_path / location).exists()
        await store.close()


@pytest.mark.parametrize(
    "url",
    ["", "redis://here", "sqlite:", "sqlite://", "sqlite:///", "sqlite:x.db", "sqlite:///dir/", "memory:x"],
)
def test_an_invalid_url_is_refused_with_the_valid_forms(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///file\.db"):
        open_store(url)


async def test_a_new_file_gets_the_newest_schema(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    assert version(path) == len(migrations.scripts())


async def test_a_file_of_the_first_schema_opens_with_its_tasks(path: Path, clock: Clock) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((HERE / "schema_1.sql").read_text(encoding="utf-8"))
    connection.close()
    assert oldest(path) == 1
    store = SQLiteStore(path, clock=clock)
    await store.open()
    assert await store.get("old") == task("old", phase="waiting", version=2, head={"asks": ["name"]})
    assert [(entry.kind, entry.data) for entry in await store.read("old")] == [
        ("begun", {"city": "Oslo"}),
        ("ask", "name"),
    ]
    assert [await store.count(phase) for phase in ("ready", "waiting", "ended")] == [1, 1, 0]
    (claim,) = await store.claim("w", lease=1, limit=5)
    assert (claim.record.id, claim.token) == ("next", 4)
    assert await store.append("old", [("answer", "Ann")], expect=2, phase="ready", head={}) == 3
    await store.close()
    assert version(path) == len(migrations.scripts())


async def test_a_migration_keeps_the_data_and_runs_once(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [("x", 1)])
    await store.close()
    steps = [
        *migrations.scripts(),
        "ALTER TABLE task_rows ADD COLUMN note TEXT;\nUPDATE task_rows\n  SET note = id;\n",
    ]
    database = Database(str(path), 1.0)
    for _ in range(2):
        connection = database.connect("write")
        migrations.migrate(database, connection, steps)
        assert connection.execute("SELECT note FROM task_rows").fetchall() == [("a",)]
        connection.close()
    assert version(path) == len(steps)


async def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    steps = [*migrations.scripts(), "CREATE TABLE extra (x);\nSELECT nonsense;\n"]
    database = Database(str(path), 1.0)
    connection = database.connect("write")
    with pytest.raises(sqlite3.OperationalError):
        migrations.migrate(database, connection, steps)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").fetchone() == (0,)
    connection.close()
    assert version(path) == len(migrations.scripts())


async def test_a_migration_without_enough_space_changes_nothing(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [("x", 1)])
    await store.close()
    steps = [
        *migrations.scripts(),
        "CREATE TABLE extra (x);\nINSERT INTO extra VALUES (zeroblob(1000000));\n",
    ]
    database = Database(str(path), 1.0, max_bytes=500_000)
    connection = database.connect("write")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        migrations.migrate(database, connection, steps)
    connection.close()
    assert version(path) == len(migrations.scripts())
    await store.open()
    assert await store.get("a") == task(version=1)
    await store.close()


async def test_a_file_of_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    newer = len(migrations.scripts()) + 1
    upgrade(path, "ALTER TABLE task_rows RENAME TO works;\n", oldest=newer)
    before = content(path)
    with pytest.raises(StoreUnavailable, match=f"schema {newer}.*install a newer.*restore the backup"):
        await store.open()
    assert content(path) == before
    assert oldest(path) == newer


def upgrade(path: Path, script: str, **options: int) -> None:
    """Migrate a file as the next version would, with one more script."""
    database = Database(str(path), 1.0)
    connection = database.connect("write")
    migrations.migrate(database, connection, [*migrations.scripts(), script], **options)
    connection.close()


async def test_the_version_before_can_be_started_again_after_an_upgrade(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [("x", 1)])
    await store.close()
    upgrade(path, "ALTER TABLE task_rows ADD COLUMN note TEXT;\n")
    assert version(path) == len(migrations.scripts()) + 1
    await store.open()
    await store.append("a", [("x", 2)], expect=1, phase="ready", head=None)
    await store.create(task("b"), [("x", 1)])
    await store.close()
    assert version(path) == len(migrations.scripts()) + 1


async def test_a_version_that_knows_only_schema_2_accepts_a_file_of_this_version(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    # That version compares `user_version` with the number of its scripts, and runs the scripts after it.
    assert oldest(path) == migrations.OLDEST == 2


async def test_a_file_of_schema_2_opens_and_keeps_its_leases(path: Path, clock: Clock) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("".join(migrations.scripts()[:2]))
    connection.executescript("PRAGMA user_version = 2; PRAGMA application_id = 0x416E7470;")
    connection.execute(
        "INSERT INTO tasks VALUES (1, 'a', 'ann', 'echo', 'ready', 0, 0, 0, NULL, 3, 'old', ?, 1, 'null')",
        (clock.now + 5000,),
    )
    connection.commit()
    connection.close()
    store = SQLiteStore(path, clock=clock, machine_clock=MachineClock(lambda: 50.0, "boot"))
    await store.open()
    assert await store.renew([("a", 3)], lease=1) == {"a"}
    assert await store.claim("new", lease=1, limit=1) == []
    await store.close()
    assert (version(path), oldest(path)) == (len(migrations.scripts()), 2)


async def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = content(path)
    with pytest.raises(StoreUnavailable, match="another program"):
        await SQLiteStore(path).open()
    assert content(path) == before


async def test_a_store_that_could_not_be_opened_can_be_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "later" / "store.db"
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="make it first"):
        await store.open()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.get("a")
    await asyncio.to_thread(path.parent.mkdir)
    await store.open()
    await store.create(task(), [])
    await store.close()


async def test_tasks_are_there_after_the_store_is_reopened(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [("x", 1)])
    await store.close()
    again = SQLiteStore(path)
    await again.open()
    assert await again.get("a") == task(version=1)
    await again.close()


async def test_opening_an_open_store_does_nothing(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    threads = store.opened()
    await store.open()
    assert store.opened() is threads
    await store.close()


async def test_a_size_limit_too_small_for_the_tables_is_refused(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot be opened.*Free some space"):
        await SQLiteStore(path, max_bytes=8192).open()
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [])
    await store.close()


async def test_an_sqlite_that_is_too_old_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreUnavailable, match=r"too old: install SQLite 3\.37\.0 or later"):
        await SQLiteStore(path).open()
    assert not path.exists()


def test_a_database_without_a_write_ahead_log_is_refused() -> None:
    database = Database(":memory:", 1.0)
    connection = database.connect("write")
    with pytest.raises(StoreUnavailable, match="Put it on a local disk"):
        database.use_wal(connection)
    connection.close()
