"""`antiphon store prune`: old tasks that have ended are deleted, and their space is given back."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from antiphon.runtime.tasks.pruning import prune
from antiphon.store import open_store
from antiphon.store.contract import Store, TaskFilter
from tests.cli.command import antiphon
from tests.cli.stored_tasks import HOUR, make_store, sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return str(request.getfixturevalue("database").url())


def left(url: str) -> list[str]:
    """Return the ids of all tasks, newest first."""
    return [task["taskId"] for task in json.loads(antiphon("tasks", "ls", url, "--json").stdout)]


def test_only_ended_tasks_that_match_are_deleted(url: str) -> None:
    make_store(url)  # all tasks have ended just now
    everything = left(url)
    kept = antiphon("store", "prune", url, "--ended-before", "1h")
    assert (kept.returncode, kept.stdout, kept.stderr) == (0, "Deleted 0 ended tasks.\n", "")
    assert left(url) == everything
    options = ("--ended-before", "0s", "--outcome", "failed")
    assert antiphon("store", "prune", url, *options, "--principal", "ann").stdout == "Deleted 1 ended task.\n"
    assert left(url) == [id for id in everything if id != "failed0"]
    assert json.loads(antiphon("store", "prune", url, *options, "--json").stdout) == {"deleted": 1}
    assert antiphon("store", "prune", url, "--ended-before", "0s").stdout == "Deleted 2 ended tasks.\n"
    assert left(url) == ["running0", "queued0", "waiting0"]
    assert antiphon("store", "check", url).returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ended-before", "old"), "Invalid age 'old' for --ended-before"),
        ((), "Missing option '--ended-before'"),
    ],
)
def test_an_age_is_needed(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = antiphon("store", "prune", sqlite_url(tmp_path), *options)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


async def test_the_file_becomes_smaller(tmp_path: Path) -> None:
    path, now = tmp_path / "tasks.db", int(time.time() * 1000)
    await asyncio.to_thread(make_store, sqlite_url(tmp_path))
    store = open_store(sqlite_url(tmp_path))
    await store.open()
    await _add_large(store, 300)
    large = path.stat().st_size
    pruned = await prune(store, TaskFilter(tool="large"), ended_before=now)
    assert pruned == 300
    assert await store.count("ended") == 4
    await store.close()
    assert path.stat().st_size < large / 2


async def test_a_task_that_changes_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory:")
    await store.open()
    await _add_large(store, 3)
    list_tasks = store.list

    async def list_and_retry(*arguments: Any, **options: Any) -> Any:
        page = await list_tasks(*arguments, **options)
        await store.append("large1", [("recorded", {"retry": True})], expect=0, phase="ready", head=None)
        return page

    monkeypatch.setattr(store, "list", list_and_retry)
    now = int(time.time() * 1000)
    pruned = await prune(store, TaskFilter(), ended_before=now)
    assert pruned == 2
    assert await store.get("large1") is not None
    await store.close()


async def _add_large(store: Store, count: int) -> None:
    from tests.store.support import task

    now = int(time.time() * 1000)
    for n in range(count):
        record = task(
            f"large{n}",
            tool="large",
            created=now - HOUR,
            updated=now - HOUR,
            phase="ended",
            head={"x": "x" * 50_000},
        )
        await store.create(record, [])
