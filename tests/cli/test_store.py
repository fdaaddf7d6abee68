"""`antiphon store`: backups that are made while a server runs, and compact files."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Running, antiphon, running
from tests.promises.speaking import Patient, begin, reach
from tests.support.process import ROOT

from .test_server_and_worker import port_of
from .test_worker import shop

__all__ = ["shop"]

STORE = "sqlite:///tasks.db"


@pytest.fixture
def server(shop: Path) -> Iterator[Running]:
    with running(shop, "--store", STORE, directory=shop.parent, cwd=shop.parent) as server:
        yield server


async def test_a_backup_is_made_while_a_server_runs_and_can_be_restored(shop: Path, server: Running) -> None:
    folder = shop.parent
    client = Patient(port_of(server.url))
    ended = (await begin(client, "slow"))["taskId"]
    await reach(client, ended, "completed")
    waiting = (await begin(client, "ask"))["taskId"]
    await reach(client, waiting, "input_required")
    done = antiphon("store", "backup", STORE, "backup.db", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Copied 2 tasks to backup.db (")
    assert sorted(path.name for path in folder.glob("backup*")) == ["backup.db"]

    later = (await begin(client, "slow"))["taskId"]
    await reach(client, later, "completed")
    server.terminate()
    for path in folder.glob("tasks.db*"):
        path.unlink()
    shutil.copy(folder / "backup.db", folder / "tasks.db")
    with running(shop, "--store", STORE, directory=folder, cwd=folder) as restored:
        client = Patient(port_of(restored.url))
        await reach(client, ended, "completed")
        await reach(client, waiting, "input_required")
        listed = json.loads(antiphon("tasks", "ls", STORE, "--json", cwd=folder).stdout)
        assert {task["taskId"] for task in listed} == {ended, waiting}
        answered = antiphon("tasks", "answer", STORE, waiting, "name=Ann", cwd=folder)
        assert answered.returncode == 0, answered.stderr
        await reach(client, waiting, "completed")


def test_a_backup_prints_json(server: Running, shop: Path) -> None:
    done = antiphon("store", "backup", STORE, "backup.db", "--json", cwd=shop.parent)
    size = (shop.parent / "backup.db").stat().st_size
    assert json.loads(done.stdout) == {"file": "backup.db", "tasks": 0, "bytes": size}


@pytest.mark.parametrize(
    ("url", "target", "message"),
    [
        ("sqlite:///none.db", "b.db", "There is no store at none.db."),
        ("memory:", "b.db", "Tasks in the memory of a server cannot be backed up."),
        ("redis://here", "b.db", "Unknown store URL"),
        ("postgresql://ann:secret@h/d?schema=s", "b.db", "pg_dump --schema=s postgresql://ann@h/d"),
        (STORE, "tasks.db", "The file tasks.db exists: choose another name"),
        (STORE, "none/b.db", "There is no directory none: make it first."),
    ],
)
def test_a_backup_that_cannot_be_made_says_why(tmp_path: Path, url: str, target: str, message: str) -> None:
    shutil.copy(ROOT / "tests" / "upgrade" / "schema_2" / "store.sqlite", tmp_path / "tasks.db")
    done = antiphon("store", "backup", url, target, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "secret" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.db"]


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "tasks.db")
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    for command in (["backup", STORE, "b.db"], ["compact", STORE]):
        done = antiphon("store", *command, cwd=tmp_path)
        assert done.returncode == 3
        assert "is a database of another program" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.db"]


def test_a_damaged_store_is_not_backed_up(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    shutil.copy(ROOT / "tests" / "upgrade" / "schema_2" / "store.sqlite", path)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * (4096 * 3)
    path.write_bytes(bytes(content))
    done = antiphon("store", "backup", STORE, "b.db", cwd=tmp_path)
    assert done.returncode == 3
    assert "damaged" in done.stderr
    assert not list(tmp_path.glob("b.db*"))


def test_a_backup_does_not_migrate_the_store(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    shutil.copy(ROOT / "tests" / "upgrade" / "schema_2" / "store.sqlite", path)
    before = path.read_bytes()
    assert antiphon("store", "backup", STORE, "b.db", cwd=tmp_path).returncode == 0
    assert path.read_bytes() == before


def test_compacting_gives_the_free_space_of_an_old_file_back(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    shutil.copy(ROOT / "tests" / "upgrade" / "schema_2" / "store.sqlite", path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE large (x)")
    connection.execute("INSERT INTO large VALUES (zeroblob(5000000))")
    connection.commit()
    connection.execute("DROP TABLE large")
    connection.close()
    large = path.stat().st_size
    done = antiphon("store", "compact", STORE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Compacted the store from 5.")
    assert path.stat().st_size < large / 10
    again = json.loads(antiphon("store", "compact", STORE, "--json", cwd=tmp_path).stdout)
    assert again["bytes"] == path.stat().st_size


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory:", "have no file to compact"),
        ("postgresql://h/d", "run VACUUM FULL on the tables of the schema antiphon"),
        ("sqlite:///none.db", "There is no store at none.db."),
    ],
)
def test_a_store_without_a_file_cannot_be_compacted(tmp_path: Path, url: str, message: str) -> None:
    done = antiphon("store", "compact", url, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
