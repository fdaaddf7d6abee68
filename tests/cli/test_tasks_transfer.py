"""`antiphon tasks export` of many tasks and `antiphon tasks import`, between all kinds of stores."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from antiphon.store import open_store
from antiphon.store.contract import Record
from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.cli.stored_tasks import HOUR, create_task, make_store, sqlite_url
from tests.support.polling import wait_until


def read_store(url: str) -> list[tuple[Record, list[Any]]]:
    """Return all tasks of a store with their logs, by id."""

    async def read() -> list[tuple[Record, list[Any]]]:
        store = open_store(url)
        await store.open()
        try:
            records = (await store.list(None, limit=1000)).records
            tasks = [(record, list(await store.read(record.id))) for record in records]
        finally:
            await store.close()
        return sorted(tasks, key=lambda task: task[0].id)

    return asyncio.run(read())


def export(url: str, *options: str) -> tuple[str, str]:
    """Return the file of an export, and what the command said about it."""
    done = antiphon("tasks", "export", url, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_tasks_move_between_sqlite_and_postgres(tmp_path: Path, database: Any) -> None:
    first, middle, last = sqlite_url(tmp_path), database.url(), sqlite_url(tmp_path, "new.db")
    make_store(first, count=15)
    text, said = export(first, "--all")
    assert len(text.splitlines()) == 15 * 7 + 1
    assert said.startswith("Exported 105 tasks.\n45 tasks had not ended. Stop the servers and workers")
    (tmp_path / "tasks.jsonl").write_text(text, encoding="utf-8")
    done = antiphon("tasks", "import", middle, tmp_path / "tasks.jsonl")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Imported 105 tasks.\n", "")
    back, _ = export(middle, "--all", "-o", str(tmp_path / "back.jsonl"))
    assert back == ""
    assert (tmp_path / "back.jsonl").stat().st_mode & 0o077 == 0
    done = antiphon("tasks", "import", last, tmp_path / "back.jsonl", "--json")
    counts = {"imported": 105, "present": 0, "updated": 0, "events": 0, "differing": [], "complete": True}
    assert (done.returncode, json.loads(done.stdout)) == (0, counts)
    assert read_store(last) == read_store(middle) == read_store(first)


def test_an_import_can_be_repeated(tmp_path: Path) -> None:
    old, new, file = sqlite_url(tmp_path), sqlite_url(tmp_path, "new.db"), tmp_path / "tasks.jsonl"
    make_store(old)
    export(old, "--all", "-o", str(file))
    assert antiphon("tasks", "import", new, file).returncode == 0
    before = read_store(new)
    again = antiphon("tasks", "import", new, file)
    assert (again.returncode, again.stdout) == (0, "Imported 0 tasks. 7 tasks were there already.\n")
    assert read_store(new) == before

    # One task has gone on in the new store, and another one has another log there.
    assert antiphon("tasks", "cancel", new, "waiting0").returncode == 0
    lines = file.read_text(encoding="utf-8").splitlines()
    changed = [line.replace('"text":"no"', '"text":"yes"') for line in lines]
    file.write_text("\n".join(changed), encoding="utf-8")
    differing = antiphon("tasks", "import", new, file)
    assert (differing.returncode, differing.stdout) == (1, "Imported 0 tasks. 6 tasks were there already.\n")
    assert "The store has another log for 1 task: failed0. The tasks in the store were not changed." in (
        differing.stderr
    )


def test_a_waiting_task_goes_on_in_the_other_store(tmp_path: Path) -> None:
    old, new, file = sqlite_url(tmp_path), sqlite_url(tmp_path, "new.db"), tmp_path / "tasks.jsonl"
    make_store(old)
    text, said = export(old, "--phase", "waiting", "--tool", "ask")
    assert said.startswith("Exported 1 task.\n")
    file.write_text(text, encoding="utf-8")
    assert antiphon("tasks", "import", new, file).returncode == 0
    answered = antiphon("tasks", "answer", new, "waiting0", "--default-answer", "accept", "--no-input")
    assert answered.returncode == 0, answered.stderr
    listed = json.loads(antiphon("tasks", "ls", new, "--phase", "ready", "--json").stdout)
    assert [task["taskId"] for task in listed] == ["waiting0"]


def test_tasks_can_be_piped_from_one_store_into_another(tmp_path: Path) -> None:
    old, new = sqlite_url(tmp_path), sqlite_url(tmp_path, "new.db")
    make_store(old)
    text, _ = export(old, "--outcome", "failed")
    done = subprocess.run(
        [*COMMAND, "tasks", "import", new, "-"],
        input=text,
        env=plain_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Imported 2 tasks.\n", "")


def test_artifacts_are_not_exported_and_the_command_says_so(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)

    async def make() -> None:
        store = open_store(url)
        await store.open()
        await create_task(store, "done0", age=HOUR)
        record = await store.get("done0")
        assert record is not None
        result = {"content": [], "is_error": False, "meta": {"artifact_id": "x"}}
        await store.append("done0", [], expect=2, phase="ended", head={**record.head, "result": result})
        await store.close()

    asyncio.run(make())
    _, said = export(url, "--all")
    assert "1 task had results in artifacts. Artifacts are not exported" in said


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["no json"], "Line 1 is not a task"),
        (
            ['{"format":2,"record":{},"log":[]}'],
            "Line 1 is not a task of `antiphon tasks export`: its format is 2",
        ),
        (['{"format":1}'], "missing required field `record`"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    done = antiphon("tasks", "import", sqlite_url(tmp_path), file)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_an_incomplete_file_is_noticed(tmp_path: Path) -> None:
    old, new, file = sqlite_url(tmp_path), sqlite_url(tmp_path, "new.db"), tmp_path / "tasks.jsonl"
    make_store(old)
    lines = export(old, "--all")[0].splitlines()
    file.write_text("\n".join(lines[:4]), encoding="utf-8")
    done = antiphon("tasks", "import", new, file)
    assert (done.returncode, done.stdout) == (1, "Imported 4 tasks.\n")
    assert "The file is incomplete: its last line is missing." in done.stderr
    file.write_text("\n".join(lines)[:-200], encoding="utf-8")
    assert "Run the command again with a complete file." in antiphon("tasks", "import", new, file).stderr
    assert antiphon("tasks", "import", new, tmp_path / "none").stderr.startswith("Error: Cannot read")


@pytest.mark.parametrize(
    "options", [(), ("ID", "--all"), ("--all", "--phase", "ended"), ("ID", "--tool", "x")]
)
def test_an_export_needs_to_know_the_tasks(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = antiphon("tasks", "export", sqlite_url(tmp_path), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Name the tasks to export: one ID, or --all, or conditions such as --phase." in done.stderr


SERVER = """
from pathlib import Path

from antiphon import Context, Limits, Server
from tests.support.polling import until

server = Server("shop", limits=Limits(drain_timeout=0.1))
here = Path(__file__).parent


def charge() -> None:
    with (here / "charges").open("a") as file:
        file.write("charged\\n")


@server.tool(task="required")
async def buy(ctx: Context) -> str:
    await ctx.step(charge)
    await until((here / "open").exists)
    name = await ctx.elicit("Name?", str, key="name")
    return f"bought for {name}"
"""


def test_a_task_that_runs_continues_in_the_other_store_after_its_server_has_stopped(
    tmp_path: Path, database: Any
) -> None:
    script, old, new = tmp_path / "shop.py", sqlite_url(tmp_path), database.url()
    script.write_text(SERVER)
    with running(script, directory=tmp_path, env={"ANTIPHON_STORE": old}) as server:
        begun = antiphon("call", server.url, "buy", "--task", "--timeout", "1", "--no-input")
        id = begun.stderr.splitlines()[0].removeprefix("Task: ")
        wait_until(lambda: (tmp_path / "charges").exists(), PATIENCE)
        text, _ = export(old, "--all")  # while it runs
        assert json.loads(text.splitlines()[0])["record"]["phase"] == "ready"
        server.terminate()
    export(old, "--all", "-o", str(tmp_path / "tasks.jsonl"))
    assert antiphon("tasks", "import", new, tmp_path / "tasks.jsonl").returncode == 0
    (tmp_path / "open").touch()
    with running(script, directory=tmp_path, env={"ANTIPHON_STORE": new}) as server:
        wait_until(lambda: antiphon("tasks", "answer", new, id, "value=Ann").returncode == 0, PATIENCE)
        watched = antiphon("tasks", "watch", server.url, id)
        assert watched.stdout.splitlines()[-1].endswith("completed")
    assert (tmp_path / "charges").read_text() == "charged\n"
    assert antiphon("store", "check", new).returncode == 0
