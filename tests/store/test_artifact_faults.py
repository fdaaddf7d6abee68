"""Artifact stores that are closed, full or damaged, and writers that died."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from antiphon.errors import StoreUnavailable
from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts import ArtifactStore, open_artifacts
from antiphon.store.artifacts.contract import CHUNK_BYTES
from antiphon.store.artifacts.files import FileArtifacts
from antiphon.store.artifacts.postgres import PostgresArtifacts
from antiphon.store.artifacts.sqlite import SQLiteArtifacts
from antiphon.store.postgres.database import Database
from tests.support.postgres import Postgres

from .support import write

HOUR = 3600 * 1000


def record(id: str = "a") -> ArtifactRecord:
    return ArtifactRecord(
        id=id,
        principal="me",
        type="note",
        encoding="text",
        mime_type="text/plain",
        created=1,
        expires=10 * HOUR,
        title="A note",
    )


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def put(store: ArtifactStore, id: str = "a", data: bytes = b"x") -> None:
    await store.put(record(id), pieces(data), max_bytes=100 * CHUNK_BYTES)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_closed_store_refuses_reads_and_can_be_reopened(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    url = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else request.getfixturevalue("database").url()
    store = open_artifacts(url)
    await store.close()
    await store.open()
    await put(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="is not open"):
        await store.get("me", "a", now=0)
    await store.open()
    assert await store.get("me", "a", now=0) is not None
    await store.close()


async def test_a_file_that_is_not_a_database_is_refused_and_its_store_can_be_closed(tmp_path: Path) -> None:
    write(tmp_path / "a.db", b"Dear diary, today I was not a database. " * 200)
    store = SQLiteArtifacts(str(tmp_path / "a.db"))
    with pytest.raises(StoreUnavailable, match=r"cannot be opened.*not an SQLite database"):
        await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="is not open"):
        await store.get("me", "a", now=0)


async def test_a_full_disk_stores_nothing_of_a_new_artifact_and_keeps_the_others(tmp_path: Path) -> None:
    store = SQLiteArtifacts(str(tmp_path / "a.db"))
    await store.open()
    await put(store, "small")
    assert store.connection is not None
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(StoreUnavailable, match="Free some space"):
        await put(store, "large", b"x" * CHUNK_BYTES)
    assert [found.id for found in (await store.list("me", now=0, cursor=None, limit=9)).records] == ["small"]
    await put(store, "next")
    await store.close()


async def test_a_missing_table_is_an_error_until_it_is_restored(tmp_path: Path) -> None:
    store = SQLiteArtifacts(str(tmp_path / "a.db"))
    await store.open()
    assert store.connection is not None
    store.connection.execute("ALTER TABLE artifact_chunk RENAME TO hidden")
    with pytest.raises(StoreUnavailable, match=r"cannot be written: no such table"):
        await put(store)
    store.connection.execute("ALTER TABLE hidden RENAME TO artifact_chunk")
    await put(store)
    await store.close()


async def test_a_missing_table_in_postgresql_is_explained(database: Postgres) -> None:
    store = PostgresArtifacts(url := database.url())
    await store.open()
    found = Database.from_url(url, 10.0)
    connection = await asyncpg.connect(found.dsn, server_settings={"search_path": found.schema})
    await connection.execute("DROP TABLE artifact_chunk; DROP TABLE artifact")
    await connection.close()
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await store.get("me", "a", now=0)
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await put(store)
    await store.close()


async def test_bytes_of_a_dead_writer_are_deleted_after_an_hour(tmp_path: Path) -> None:
    store = FileArtifacts(str(tmp_path))
    await store.open()
    await put(store, "whole")
    folder = store.principal_folder("me")
    for name, age in (("lost", HOUR + 1000), ("under way", HOUR - 1000)):
        write(folder / f"{name}.data", b"half")
        os.utime(folder / f"{name}.data", ((5 * HOUR - age) / 1000,) * 2)
    os.utime(folder / "whole.data", (0, 0))
    await store.sweep(now=5 * HOUR, max_total_bytes=CHUNK_BYTES)
    names = await asyncio.to_thread(lambda: sorted(path.name for path in folder.iterdir()))
    assert names == ["under way.data", "whole.data", "whole.json"]


async def test_an_unreadable_record_does_not_hide_the_others(tmp_path: Path) -> None:
    store = FileArtifacts(str(tmp_path))
    await store.open()
    await put(store, "good")
    write(store.principal_folder("me") / "bad.json", b'{"id":')
    assert await store.get("me", "bad", now=0) is None
    await store.sweep(now=0, max_total_bytes=CHUNK_BYTES)
    assert [found.id for found in (await store.list("me", now=0, cursor=None, limit=9)).records] == ["good"]
