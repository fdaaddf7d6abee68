"""A database file that is deleted or replaced while the store is open: operations are refused, not lost."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.artifacts import open_artifacts
from antiphon.store.sqlite import SQLiteStore
from tests.support.polling import until

from .support import START, task

OPERATIONS: dict[str, Callable[[SQLiteStore], Awaitable[Any]]] = {
    "create": lambda store: store.create(task("b"), []),
    "append": lambda store: store.append("a", [("x", 2)], expect=1, phase="ready", head=None),
    "claim": lambda store: store.claim("w", lease=1, limit=1),
    "renew": lambda store: store.renew([("a", 1)], lease=1),
    "release": lambda store: store.release("a", 1),
    "expire": lambda store: store.expire(),
    "use_once": lambda store: store.use_once("k", until=START),
    "publish": lambda store: store.publish("topic", 1),
    "get": lambda store: store.get("a"),
    "read": lambda store: store.read("a"),
    "list": lambda store: store.list(None),
    "count": lambda store: store.count("ready"),
    "overdue": lambda store: store.overdue(),
}


def delete(path: Path) -> None:
    """Delete a database with the files beside it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
async def test_every_operation_on_a_deleted_file_is_refused(
    sqlite: SQLiteStore, path: Path, operation: Callable[[SQLiteStore], Awaitable[Any]]
) -> None:
    await sqlite.create(task(), [("x", 1)])
    delete(path)
    with pytest.raises(StoreUnavailable, match=r"was deleted.*Restore.*backup"):
        await sqlite.probe()
    with pytest.raises(StoreUnavailable, match="was deleted"):
        await operation(sqlite)
    assert not path.exists()


async def wait_until_refused(operation: Callable[[], Awaitable[Any]]) -> None:
    """Repeat an operation until the store refuses it."""

    async def refusal() -> str:
        try:
            await operation()
        except StoreUnavailable as error:
            return str(error)
        return ""

    assert "was deleted" in await until(refusal)


async def test_operations_are_refused_soon_without_a_probe(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task("a"), [])
    delete(path)
    await wait_until_refused(lambda: sqlite.use_once("k", until=START))
    await wait_until_refused(lambda: sqlite.get("a"))


async def test_a_replaced_file_is_refused_and_left_alone(
    sqlite: SQLiteStore, path: Path, tmp_path: Path
) -> None:
    await sqlite.create(task(), [("x", 1)])
    other = SQLiteStore(tmp_path / "other.db")
    await other.open()
    await other.close()
    delete(path)
    shutil.move(tmp_path / "other.db", path)
    with pytest.raises(StoreUnavailable, match=r"was replaced.*Restart"):
        await sqlite.probe()
    with pytest.raises(StoreUnavailable, match="was replaced"):
        await sqlite.create(task("b"), [])
    again = SQLiteStore(path)
    await again.open()
    assert await again.count("ready") == 0
    await again.close()


async def test_a_file_that_is_moved_back_is_used_again(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [("x", 1)])
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(StoreUnavailable, match="was deleted"):
        await sqlite.probe()
    away.rename(path)
    await sqlite.probe()
    assert await sqlite.get("a") == task(version=1)


async def test_a_reopened_store_starts_with_a_new_file(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [])
    delete(path)
    await sqlite.close()
    await sqlite.open()
    await sqlite.probe()
    assert await sqlite.count("ready") == 0


async def test_watchers_notice_a_deleted_file(sqlite: SQLiteStore, path: Path) -> None:
    await sqlite.create(task(), [])
    async with sqlite.watch("a") as watch:
        delete(path)
        assert await watch.wait(60)
        with pytest.raises(StoreUnavailable):
            await sqlite.get("a")


async def test_a_lease_keeper_refuses_a_deleted_file(sqlite: SQLiteStore, path: Path) -> None:
    claim = await sqlite.create(task(), [], worker="one", lease=1)
    assert claim is not None
    keeper = sqlite.lease_keeper()
    assert keeper.renew([("a", claim.token)], lease=1) == {"a"}
    delete(path)
    with pytest.raises(StoreUnavailable):
        await sqlite.probe()
    with pytest.raises(StoreUnavailable, match="was deleted"):
        keeper.renew([("a", claim.token)], lease=1)
    keeper.close()


async def test_artifacts_in_a_deleted_file_are_refused(path: Path) -> None:
    artifacts = open_artifacts(f"sqlite:///{path}")
    await artifacts.open()
    delete(path)
    await wait_until_refused(lambda: artifacts.get("ann", "a", now=START))
    await artifacts.close()
