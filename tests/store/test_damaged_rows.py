"""One row that somebody damaged: the others are listed, claimed and deleted, and the log names it once."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.model.artifact import ArtifactRecord
from antiphon.store.artifacts import open_artifacts
from antiphon.store.contract import Store, TaskFilter
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore

from .support import START, Clock, task
from .test_postgres import direct_connection

Damage = Callable[[str], Awaitable[None]]

DAMAGES = {
    "sqlite: no JSON": "UPDATE task_rows SET head = '{\"a\":' WHERE id = ?",
    "sqlite: empty": "UPDATE task_rows SET head = '' WHERE id = ?",
    "sqlite: no UTF-8": "UPDATE task_rows SET head = CAST(x'22ff22' AS TEXT), phase = 'odd' WHERE id = ?",
    "sqlite: phase": "UPDATE task_rows SET phase = 'odd' WHERE id = ?",
    "postgres: no JSON": "UPDATE tasks SET head = '{\"a\":' WHERE id = $1",
    "postgres: empty": "UPDATE tasks SET head = '' WHERE id = $1",
}


@pytest.fixture(params=DAMAGES)
async def damaged(
    request: pytest.FixtureRequest, path: Path, clock: Clock
) -> AsyncIterator[tuple[Store, Damage]]:
    """An open store, and a function that damages a task."""
    statement = DAMAGES[request.param]
    store: Store
    if request.param.startswith("sqlite"):
        store = SQLiteStore(path, clock=clock)

        async def damage(id: str) -> None:
            with sqlite3.connect(path) as connection:
                assert connection.execute(statement, (id,)).rowcount == 1
            connection.close()
    else:
        url = request.getfixturevalue("database").url()
        store = PostgresStore(url, clock=clock)

        async def damage(id: str) -> None:
            async with direct_connection(url) as connection:
                assert await connection.execute(statement, id) == "UPDATE 1"

    await store.open()
    yield store, damage
    await store.close()


def is_ready(request: pytest.FixtureRequest) -> bool:
    """Return whether a damaged task still has its phase."""
    return not any(word in request.node.name for word in ("phase", "UTF-8"))


def named(caplog: pytest.LogCaptureFixture) -> int:
    """Return how often the log names the damaged task."""
    return caplog.text.count("Skipping task 'bad'")


async def test_the_others_are_listed_and_read(
    damaged: tuple[Store, Damage], caplog: pytest.LogCaptureFixture
) -> None:
    store, damage = damaged
    for n, id in enumerate(("first", "bad", "last")):
        await store.create(task(id, created=START + n, server="here"), [])
    await damage("bad")
    for _ in range(2):
        for options in ({}, {"server": "here"}):
            page = await store.list("ann", **options)  # type: ignore[arg-type]
            assert [record.id for record in page.records] == ["last", "first"]
    for filter in (None, TaskFilter(tool="echo"), TaskFilter(phase="ready")):
        page = await store.list(None, filter=filter)
        assert [record.id for record in page.records] == ["last", "first"]
    page = await store.list("ann", limit=2)
    assert [record.id for record in page.records] == ["last"]
    rest = await store.list("ann", limit=2, cursor=page.cursor)
    assert [record.id for record in rest.records] == ["first"]
    with pytest.raises(StoreUnavailable, match="'bad' cannot be read.*damaged"):
        await store.get("bad")
    found = await store.get("first")
    assert found is not None
    assert named(caplog) == 1


async def test_the_others_are_claimed(
    damaged: tuple[Store, Damage], request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    store, damage = damaged
    for n, id in enumerate(("bad", "good", "better")):
        await store.create(task(id, created=START + n, server="here"), [])
    await damage("bad")
    claimed: list[str] = []
    for _ in range(4):
        claims = await store.claim("w", lease=60, limit=1, tools=["echo"], server="here")
        claimed += [claim.record.id for claim in claims]
    assert claimed == ["good", "better"]
    assert named(caplog) == (1 if is_ready(request) else 0)


async def test_the_others_are_overdue_and_deleted(
    damaged: tuple[Store, Damage], clock: Clock, request: pytest.FixtureRequest
) -> None:
    store, damage = damaged
    for id in ("bad", "good"):
        await store.create(task(id, phase="waiting", expires=START, server="here"), [])
    await damage("bad")
    clock.forward(1)
    for options in ({}, {"server": "here"}):
        found: Any = await store.overdue(**options)  # type: ignore[arg-type]
        assert [record.id for record in found] == ["good"]
    for id in ("ended", "bad too"):
        await store.create(task(id, phase="ended", expires=START), [])
    await damage("bad too")
    deleted = {record.id: record.head for record in await store.expire()}
    assert deleted.pop("ended") == {"status": "working"}
    assert deleted == ({"bad too": None} if is_ready(request) else {})


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_damaged_artifact_does_not_hide_the_others(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "artifacts.db"
    url = f"sqlite:///{path}" if kind == "sqlite" else request.getfixturevalue("database").url()
    store = open_artifacts(url)
    await store.open()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    for n, id in enumerate(("first", "bad", "last")):
        record = ArtifactRecord(id, "ann", "Note", "text", "text/plain", START + n, START + 9999)
        await store.put(record, pieces(), max_bytes=9)
    if kind == "sqlite":
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE artifact SET record = x'00' WHERE id = 'bad'")
        connection.close()
    else:
        async with direct_connection(url) as connection:
            await connection.execute("UPDATE artifact SET record = '\\x00' WHERE id = 'bad'")
    for _ in range(2):
        page = await store.list("ann", now=START, cursor=None, limit=5)
        assert [record.id for record in page.records] == ["last", "first"]
    page = await store.list("ann", now=START, cursor=None, limit=2)
    assert [record.id for record in page.records] == ["last"]
    rest = await store.list("ann", now=START, cursor=page.cursor, limit=2)
    assert [record.id for record in rest.records] == ["first"]
    assert await store.get("ann", "bad", now=START) is None
    assert caplog.text.count("Skipping artifact 'bad'") == 1
    await store.close()
