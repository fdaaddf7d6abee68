"""`antiphon store check`: stores of servers have no problems, and damaged ones are named."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from antiphon.store.postgres.database import Database
from tests.cli.command import antiphon, running
from tests.cli.stored_tasks import make_store, sqlite_url
from tests.support.process import ROOT

from .test_tasks import TASKS_SERVER, Served, start_waiting_task, wait_for_status


def problems(url: str) -> list[tuple[str | None, str]]:
    """Return the problems that the command finds."""
    done = antiphon("store", "check", url, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1 if found["problems"] else 0, "")
    assert found["count"] == len(found["problems"])
    return [(problem["taskId"], problem["problem"]) for problem in found["problems"]]


def test_the_store_of_a_running_server_has_no_problems(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    with running(TASKS_SERVER, directory=tmp_path, env={"ANTIPHON_STORE": store}) as server:
        served = Served(server.url, store)
        for tool in ("sleep", "fails", "pack"):
            antiphon("call", served.url, tool, "--task")
        waiting = start_waiting_task(served, "greet")
        cancelled = start_waiting_task(served, "greet")
        assert antiphon("tasks", "cancel", served.url, cancelled).returncode == 0
        answered = start_waiting_task(served, "greet")
        assert antiphon("tasks", "answer", store, answered, "name=Ada").returncode == 0
        wait_for_status(served, waiting, "input_required")
        done = antiphon("store", "check", store)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("Read 6 tasks with ")
    assert done.stdout.endswith(" entries. No problem was found.\n")


@pytest.mark.parametrize("name", ["schema_2/store.sqlite", "schema_3/store.sqlite"])
def test_a_store_of_an_earlier_version_is_checked_and_not_migrated(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tasks.db"
    shutil.copy(ROOT / "tests" / "upgrade" / name, path)
    before = path.read_bytes()
    assert problems(sqlite_url(tmp_path)) == []
    assert path.read_bytes() == before


DAMAGES = [
    ("UPDATE {tasks} SET head = '{{\"id\":' WHERE id = 'done0'", "done0", "Its head cannot be read"),
    (
        "UPDATE {tasks} SET phase = 'waiting' WHERE id = 'done0'",
        "done0",
        "Its phase is waiting, but its state is done.",
    ),
    (
        "UPDATE {tasks} SET version = 3 WHERE id = 'done0'",
        "done0",
        "Its log has a gap: entry 3 of 3 is missing.",
    ),
    (
        "UPDATE {tasks} SET version = 1 WHERE id = 'done0'",
        "done0",
        "has the entry 2, but its record says 1 entries.",
    ),
    ("UPDATE {tasks} SET tool = 'x' WHERE id = 'done0'", "done0", "Its row and its head name different"),
    (
        "UPDATE {tasks} SET lease = 5 WHERE id = 'done0'",
        "done0",
        "A worker holds it, but its phase is ended.",
    ),
    ("UPDATE {tasks} SET head = replace(head, 'ok', 'no') WHERE id = 'done0'", "done0", "log says: result."),
    (
        "UPDATE {tasks} SET format = 2 WHERE id = 'queued0'",
        "queued0",
        "A newer version of Antiphon has written it",
    ),
    ("DELETE FROM entries WHERE kind = 'asked'", "waiting0", "Its log has a gap: entry 2 of 2 is missing."),
    ("UPDATE entries SET data = '[' WHERE kind = 'asked'", "waiting0", "Its entry 2 (asked) cannot be read"),
    (
        "UPDATE entries SET kind = 'answered' WHERE kind = 'asked'",
        "waiting0",
        "A task that is working cannot be",
    ),
    ("INSERT INTO entries VALUES (99, 1, 'x', 0, 1, 'null')", None, "1 entries belong to no task."),
    (
        "DELETE FROM {tasks} WHERE id = 'queued0'",
        None,
        "counted 2 tasks in the phase ready, but there are 1.",
    ),
]


@pytest.mark.parametrize(("statement", "id", "message"), DAMAGES)
def test_damaged_rows_are_named_in_sqlite(
    tmp_path: Path, statement: str, id: str | None, message: str
) -> None:
    url = sqlite_url(tmp_path)
    make_store(url)
    connection = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    connection.execute(statement.format(tasks="task_rows"))
    connection.close()
    found = problems(url)
    assert any(message in sentence and task == id for task, sentence in found), found


def test_damaged_rows_are_named_in_postgres(database: Any) -> None:
    url = database.url()
    make_store(url)
    assert problems(url) == []
    damages = [DAMAGES[0], *DAMAGES[7:8], *DAMAGES[9:10], *DAMAGES[11:]]

    async def damage() -> None:
        parsed = Database.from_url(url, 10.0)
        connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
        for statement, _, _ in damages[:-1]:
            await connection.execute(statement.format(tasks="tasks"))
        await connection.execute("DELETE FROM tasks WHERE id = 'running0'")
        await connection.close()

    asyncio.run(damage())
    found = problems(url)
    for _, id, message in damages[:-2]:
        assert any(message in sentence and task == id for task, sentence in found), (message, found)
    assert (None, "2 entries belong to no task. They take space, but do no harm.") in found
    assert (None, "The store has counted 2 tasks in the phase ready, but there are 1.") in found


def test_the_list_says_what_to_do(tmp_path: Path) -> None:
    make_store(sqlite_url(tmp_path))
    connection = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    connection.execute("UPDATE task_rows SET id = 'a\nb' WHERE id = 'done0'")
    connection.close()
    done = antiphon("store", "check", sqlite_url(tmp_path))
    first, last = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.endswith(": Its row and its head name different ids, tools or times of creation.")
    assert last.startswith(
        "Read 7 tasks with 12 entries. 1 problem was found. Nothing was changed. Make a copy"
    )


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    make_store(sqlite_url(tmp_path), count=100)
    path = tmp_path / "tasks.db"
    content = bytearray(path.read_bytes())
    content[4096 * 45 : 4096 * 48] = b"\xff" * (4096 * 3)
    path.write_bytes(bytes(content))
    done = antiphon("store", "check", sqlite_url(tmp_path))
    assert done.returncode == 1
    assert "store: The database is damaged: " in done.stdout


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("memory:", 2, "cannot be checked"),
        ("sqlite:///none.db", 2, "There is no store at none.db."),
        ("redis://x", 2, "Unknown store URL"),
        ("sqlite:///empty.db", 3, "is empty: no server has used it yet."),
        ("sqlite:///text.db", 3, "not an SQLite database"),
    ],
)
def test_a_store_that_cannot_be_checked_says_why(tmp_path: Path, url: str, code: int, message: str) -> None:
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("a text" * 100)
    done = antiphon("store", "check", url, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
