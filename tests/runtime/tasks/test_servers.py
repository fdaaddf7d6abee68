"""Two servers of different names on one store do not run, see, list or cancel each other's tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Limits, Server
from antiphon.errors import InternalError, TaskNotFound
from antiphon.model.identity import ANONYMOUS
from antiphon.runtime.tasks.service import TaskService
from antiphon.store import open_store
from antiphon.store.contract import Record, Store
from tests.support.polling import forever, until


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each kind of store, which the servers open."""
    if request.param == "postgres":
        return open_store(request.getfixturevalue("database").url())
    return open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}")


class Shared:
    """A store that stays open until the last server has closed it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        """Leave the store open for the other server."""


def made(name: str, store: Store, ran: list[str]) -> Server:
    server = Server(name, store=Shared(store), limits=Limits(drain_timeout=0.2))  # type: ignore[arg-type]

    @server.tool(task="required")
    async def work(by: str) -> str:
        ran.append(f"{by} on {name}")
        return by

    @server.tool(task="required")
    async def wait() -> str:
        await forever()
        return "waited"

    return server


@pytest.fixture
async def pair(store: Store) -> AsyncIterator[tuple[Server, Server, list[str]]]:
    """Two servers on one store, and a list of the runs of their tools. The first one runs no tasks."""
    ran: list[str] = []
    first, second = made("first", store, ran), made("second", store, ran)
    first.configure(run_tasks=False)
    async with first.engine.running(), second.engine.running():
        yield first, second, ran
    await store.close()


def service_of(server: Server) -> TaskService:
    service = server.engine.tasks.service
    assert service is not None
    return service


async def start(server: Server, tool: str, **arguments: Any) -> str:
    async with Client(server) as client:
        task = await client.submit(tool, arguments)
    return task.id


async def test_a_server_does_not_run_the_tasks_of_another(pair: tuple[Server, Server, list[str]]) -> None:
    first, second, ran = pair
    left = await start(first, "work", by="the first")
    await start(second, "work", by="the second")
    await until(lambda: len(ran) >= 1)
    record = await service_of(first).store.get(left)
    assert record is not None
    assert (record.phase, record.server) == ("ready", "first")
    assert ran == ["the second on second"]


async def test_a_server_does_not_see_list_or_cancel_the_tasks_of_another(
    pair: tuple[Server, Server, list[str]],
) -> None:
    first, second, _ = pair
    left = await start(first, "wait")
    mine, theirs = service_of(first), service_of(second)
    assert [task.id for task in (await mine.list(ANONYMOUS, None))[0]] == [left]
    assert (await theirs.list(ANONYMOUS, None))[0] == []
    for refused in (theirs.get(left, ANONYMOUS), theirs.cancel(left, ANONYMOUS)):
        with pytest.raises(TaskNotFound):
            await refused
    assert (await mine.get(left, ANONYMOUS)).state == "working"


@pytest.mark.parametrize("head", [None, [], {"ttl": "soon"}, {"id": 7}])
async def test_a_record_that_is_no_task_is_left_out_of_the_list(
    pair: tuple[Server, Server, list[str]], head: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, _, _ = pair
    service, good = service_of(first), await start(first, "wait")
    await service.store.create(Record("bad", "", "wait", "waiting", 0, 1, 1, None, head, "first"), [])
    for _ in range(2):
        assert [task.id for task in (await service.list(ANONYMOUS, None))[0]] == [good]
    for refused in (service.get("bad", ANONYMOUS), service.cancel("bad", ANONYMOUS)):
        with pytest.raises(InternalError, match="Cannot read task bad: its record in the store is damaged"):
            await refused
    assert caplog.text.count("Skipping task 'bad'") == 1
