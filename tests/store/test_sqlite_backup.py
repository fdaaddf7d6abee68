"""Backups of an SQLite file that processes write to meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.store.maintenance import back_up_store
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite.backup import back_up
from antiphon.store.sqlite.database import Database

from .processes import all_reports, child, next_report
from .support import task


async def test_a_backup_under_load_has_every_write_from_before_and_whole_logs(
    path: Path, tmp_path: Path
) -> None:
    store = SQLiteStore(path)
    await store.open()
    for n in range(8):
        await store.create(task(f"t{n}"), [])
    target = tmp_path / "backup.db"
    async with child("write", path) as writer:
        before: dict[str, int] = {}
        for _ in range(50):
            id, version, _ = await next_report(writer)
            before[id] = version
        done = await asyncio.to_thread(back_up_store, f"sqlite:///{path}", target)
        for _ in range(8):
            await next_report(writer)  # the writer goes on
        writer.kill()
        await all_reports(writer)
    await store.close()
    assert (done.tasks, done.bytes) == (8, target.stat().st_size)
    copy = SQLiteStore(target)
    await copy.open()
    for id, version in before.items():
        record = await copy.get(id)
        assert record is not None
        assert record.version >= version
        entries = await copy.read(id, limit=10_000)
        assert [entry.number for entry in entries] == list(range(1, record.version + 1))
    await copy.close()


async def test_a_backup_ends_although_every_step_of_it_meets_a_new_commit(
    sqlite: SQLiteStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sqlite.create(task("first"), [("x", "y" * 100_000)])
    monkeypatch.setattr("antiphon.store.sqlite.backup.STEP_PAGES", 1)
    copied = asyncio.create_task(asyncio.to_thread(back_up, Database(str(path), 1.0), tmp_path / "backup.db"))
    created = 0
    while not copied.done():
        await sqlite.create(task(f"later{created}"), [("x", "y" * 10_000)])
        created += 1
    assert 1 <= (await copied).tasks <= created + 1


def test_an_interrupted_backup_leaves_nothing_behind(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_create(path))

    def interrupt(path: Path) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("antiphon.store.sqlite.backup.check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        back_up(Database(str(path), 1.0), tmp_path / "backup.db")
    assert not list(tmp_path.glob("backup*"))


async def _create(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()
