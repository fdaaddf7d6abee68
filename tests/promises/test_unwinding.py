"""Cancelled and expired tasks clean up: their `finally` blocks run, wherever the task was."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Limits, Server, wall_clock
from antiphon.cli.tasks.store_tasks import StoreTasks
from antiphon.runtime.tasks import worker
from antiphon.store import open_store
from antiphon.store.contract import Store
from antiphon.store.postgres import PostgresStore
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.promises.tooling import Ahead, Name
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.polling import turns, until
from tests.support.serving import serving
from tests.support.speakers import Bare

HOUR = 3_600_000
UNKNOWN = "Failed to retrieve task: Task not found"


class Desk:
    """A server whose tools reserve something and give it back, with a file that tells what happened."""

    def __init__(self, folder: Path, url: str | None = None, **limits: Any) -> None:
        self.path = folder / "happened"
        self.url = url or f"sqlite:///{folder}/tasks.db"
        # The time of PostgreSQL is that of these tests, too.
        self.store = open_store(self.url) if url is None else PostgresStore(url, clock=wall_clock.now)
        limits = {"lease_seconds": LONG_LEASE_SECONDS, "drain_timeout": 0.2, **limits}
        self.server = Server("desk", store=self.store, limits=Limits(**limits))
        self.gate, self.may_clean = asyncio.Event(), asyncio.Event()
        self._register(self.server)

    def note(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{what}\n")

    @property
    def happened(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    async def log(self, id: str) -> list[tuple[str, Any]]:
        return [(entry.kind, entry.data) for entry in await self.store.read(id)]

    def _register(self, server: Server) -> None:
        @server.tool(task="required", poll_interval=0.05, task_ttl=60)
        async def reserve(ctx: Context) -> str:
            await ctx.emit("One moment.")
            await ctx.step(self.note, "reserved")
            try:
                await ctx.elicit("Take it?", Name, key="take")
                await ctx.step(self.note, "taken")
            finally:
                if not ctx.suspending:
                    await turns(3)
                    self.note("given back")
                    try:
                        await ctx.step(self.note, "a step that never begins")
                    finally:
                        self.note("closed")
            return "done"

        @server.tool(task="required", poll_interval=0.05)
        def threaded(ctx: Context) -> str:
            ctx.wait(ctx.step(self.note, "reserved"))
            try:
                ctx.wait(ctx.elicit("Take it?", Name, key="take"))
            finally:
                if not ctx.suspending:
                    self.note("given back")
            return "done"

        @server.tool(task="required", poll_interval=0.05)
        async def several(ctx: Context) -> str:
            try:
                async with asyncio.TaskGroup() as group:
                    asked = [
                        group.create_task(ctx.elicit("Who?", Name, key=key)) for key in ("first", "second")
                    ]
                return asked[0].result().name
            finally:
                if not ctx.suspending:
                    self.note("given back")

        @server.tool(task="required", poll_interval=0.05)
        async def stubborn(ctx: Context, how: str) -> str:
            try:
                await ctx.elicit("Take it?", Name, key="take")
            finally:
                if not ctx.suspending:
                    if how == "fails":
                        raise ValueError("a secret of the implementation")
                    self.note("waits")
                    try:
                        await asyncio.Event().wait()
                    finally:
                        self.note("was interrupted")
            return "done"

        @server.tool(task="required", poll_interval=0.05)
        async def running(ctx: Context) -> str:
            try:
                self.note("runs")
                await self.gate.wait()
            finally:
                self.note("cleans up")
                try:
                    await self.may_clean.wait()
                    self.note("clean")
                finally:
                    self.note("left")
            return "done"


async def until_unwound(desk: Desk, id: str) -> Any:
    """Wait for the entry that says that a function has unwound, and return what it says."""

    async def said() -> bool:
        return "unwound" in (await desk.log(id))[-1][1]

    await until(said)
    return (await desk.log(id))[-1][1]["unwound"]


async def until_deleted(desk: Desk, id: str) -> None:
    """Wait until a task that has cleaned up is deleted."""

    async def is_deleted() -> bool:
        return not await desk.log(id)

    await until(is_deleted)


@pytest.mark.parametrize("tool", ["reserve", "threaded", "several"])
async def test_a_task_that_waits_and_is_cancelled_cleans_up(tmp_path: Path, tool: str) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = (await begin(client, tool))["taskId"]
        await reach(client, id, "input_required")
        before = [line for line in ("reserved",) if tool != "several"]
        assert desk.happened == before
        assert (await client.ask("tasks/cancel", {"taskId": id})).result["resultType"] == "complete"
        assert (await look(client, id))["status"] == "cancelled"
        assert await until_unwound(desk, id) is True
        after = ["given back", "closed"] if tool == "reserve" else ["given back"]
        assert desk.happened == [*before, *after]
        task = await look(client, id)
        assert (task["status"], task["statusMessage"]) == ("cancelled", "The task was cancelled by request.")
        assert [kind for kind, _ in await desk.log(id)][-2:] == ["cancelled", "recorded"]
        assert await desk.store.count("ready") == 0


async def test_a_task_that_waits_and_expires_cleans_up(tmp_path: Path, ahead: Ahead) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Bare(address.port)
        id = (await begin(client, "reserve", HOUR))["taskId"]
        await reach(client, id, "input_required")
        ahead(hours=1)
        await until(lambda: desk.happened == ["reserved", "given back", "closed"])
        assert (await client.ask("tasks/get", {"taskId": id})).error["message"] == UNKNOWN
        await until_deleted(desk, id)


async def test_a_task_with_a_short_lifetime_cleans_up_to_the_end(tmp_path: Path, ahead: Ahead) -> None:
    desk = Desk(tmp_path)

    @desk.server.tool(task="required", poll_interval=0.05, task_ttl=60)
    async def short() -> str:
        return "done"

    @desk.server.tool(task="required", poll_interval=0.05, task_ttl=60)
    async def brief(ctx: Context) -> str:
        try:
            await ctx.elicit("Take it?", Name, key="take")
        finally:
            if not ctx.suspending:
                desk.note("cleans up")
                await desk.may_clean.wait()
                desk.note("given back")
        return "done"

    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = (await begin(client, "brief"))["taskId"]
        await reach(client, id, "input_required")
        await client.ask("tasks/cancel", {"taskId": id})
        await until(lambda: desk.happened == ["cleans up"])
        other = (await begin(client, "short"))["taskId"]
        await reach(client, other, "completed")
        ahead(minutes=2)
        await until_deleted(desk, other)
        assert await desk.log(id)  # it cleans up, and so it stays
        desk.may_clean.set()
        await until_deleted(desk, id)
        assert desk.happened == ["cleans up", "given back"]


@pytest.mark.parametrize("how", ["cancelled", "expired"])
async def test_a_task_in_postgresql_cleans_up(tmp_path: Path, database: Any, how: str, ahead: Ahead) -> None:
    desk = Desk(tmp_path, database.url())
    async with serving(desk.server) as address:
        client = Bare(address.port)
        id = (await begin(client, "reserve", HOUR if how == "expired" else None))["taskId"]
        await reach(client, id, "input_required")
        if how == "cancelled":
            await client.ask("tasks/cancel", {"taskId": id})
        else:
            ahead(hours=1)
        await until(lambda: desk.happened == ["reserved", "given back", "closed"])


@pytest.mark.parametrize("where", ["server", "store"])
async def test_a_task_cleans_up_after_a_restart(tmp_path: Path, where: str) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = (await begin(client, "reserve"))["taskId"]
        await reach(client, id, "input_required")
    if where == "store":  # no server runs meanwhile
        async with StoreTasks(desk.url) as tasks:
            assert await tasks.cancel(id) == "cancelled"
        assert desk.happened == ["reserved"]
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        if where == "server":
            await client.ask("tasks/cancel", {"taskId": id})
        assert (await look(client, id))["status"] == "cancelled"
        assert await until_unwound(desk, id) is True
    assert desk.happened == ["reserved", "given back", "closed"]


async def cancelled_task(client: Patient, how: str) -> str:
    """Begin a task that cleans up in this way, and cancel it while it waits; return its id."""
    id = str((await begin(client, "stubborn", how=how))["taskId"])
    await reach(client, id, "input_required")
    await client.ask("tasks/cancel", {"taskId": id})
    return id


async def test_a_cancelled_task_cannot_be_answered_while_it_cleans_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = await cancelled_task(client, how="waits")
        await until(lambda: desk.happened == ["waits"])
        await answer(client, id, take="Ada")
        assert (await look(client, id))["status"] == "cancelled"
    assert desk.happened == ["waits", "was interrupted"]


async def test_cleaning_up_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path, unwind_timeout=0.1)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = await cancelled_task(client, how="waits")
        assert await until_unwound(desk, id) is False
    assert desk.happened == ["waits", "was interrupted"]
    assert any("still cleans up after 0.1 s" in line for line in caplog.messages)


async def test_cleaning_up_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = await cancelled_task(client, how="fails")
        assert await until_unwound(desk, id) is False
        assert (await look(client, id))["status"] == "cancelled"
    assert f"The function of cancelled task {id} failed while it unwound." in caplog.messages


async def test_a_worker_that_is_stopped_while_it_unwinds_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = await cancelled_task(client, how="waits")
        await until(lambda: desk.happened == ["waits"])
    assert desk.happened == ["waits", "was interrupted"]
    desk = Desk(tmp_path, unwind_timeout=0.1)
    async with serving(desk.server):
        assert await until_unwound(desk, id) is False
    assert desk.happened == ["waits", "was interrupted"] * 2


async def test_a_task_whose_worker_dies_each_time_it_unwinds_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = (await begin(client, "reserve"))["taskId"]
        await reach(client, id, "input_required")
    async with StoreTasks(desk.url) as tasks:
        await tasks.cancel(id)
    store = open_store(desk.url)
    await store.open()
    for _ in range(3):
        assert len(await store.claim("dead", lease=0.0, limit=1)) == 1
    await store.close()
    desk = Desk(tmp_path)
    async with serving(desk.server):
        assert await until_unwound(desk, id) is False
    assert desk.happened == ["reserved"]
    assert any("3 workers were lost while they ran it" in line for line in caplog.messages)


class Racing:
    """A store in which tasks are cancelled in the moment in which they ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.cancel: Callable[[str], Awaitable[Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, id: str, entries: Any, **options: Any) -> int:
        if self.cancel is not None and any(kind == "asked" for kind, _ in entries):
            await self.cancel(id)
        return await self._store.append(id, entries, **options)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_task_that_is_cancelled_in_the_moment_in_which_it_asks_cleans_up(
    tmp_path: Path, where: str
) -> None:
    desk = Desk(tmp_path)
    desk.store = racing = Racing(desk.store)  # type: ignore[assignment]
    desk.server.configure(store=racing)  # type: ignore[arg-type]
    async with serving(desk.server) as address, StoreTasks(desk.url) as tasks:
        client = Patient(address.port)

        async def cancel(id: str) -> None:
            racing.cancel = None
            if where == "here":
                await client.ask("tasks/cancel", {"taskId": id})
            else:
                await tasks.cancel(id)

        racing.cancel = cancel
        id = (await begin(client, "reserve"))["taskId"]
        await reach(client, id, "cancelled")
        await until(lambda: desk.happened == ["reserved", "given back", "closed"])


# Tasks that run


@pytest.mark.parametrize("how", ["cancelled", "expired"])
async def test_a_running_task_cleans_up_to_the_end(
    tmp_path: Path,
    how: str,
    caplog: pytest.LogCaptureFixture,
    ahead: Ahead,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the lease is renewed meanwhile: the worker does not cancel the function again."""
    caplog.set_level(logging.INFO, "antiphon")
    renew_often(monkeypatch)
    desk = Desk(tmp_path, drain_timeout=60.0)
    async with serving(desk.server) as address:
        client = Bare(address.port)
        id = (await begin(client, "running", HOUR if how == "expired" else None))["taskId"]
        await until(lambda: desk.happened == ["runs"])
        if how == "cancelled":
            await client.ask("tasks/cancel", {"taskId": id})
        else:
            ahead(hours=1)
        await until(lambda: desk.happened == ["runs", "cleans up"])
        await until_renewed(desk)
        desk.may_clean.set()
        await until(lambda: "left" in desk.happened)
        await until(_logged(caplog, f"Stopped running task {id}: "))
    assert desk.happened == ["runs", "cleans up", "clean", "left"]


async def test_a_running_task_that_cleans_up_for_ever_is_cancelled_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path, unwind_timeout=0.1)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = (await begin(client, "running"))["taskId"]
        await until(lambda: desk.happened == ["runs"])
        await client.ask("tasks/cancel", {"taskId": id})
        await until(lambda: "left" in desk.happened)
    assert desk.happened == ["runs", "cleans up", "left"]
    assert _logged(caplog, f"The function of task {id} was cancelled and still cleans up after 0.1 s.")()


def renew_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers renew a long lease each fifth of a second."""
    monkeypatch.setattr(worker, "RENEWALS_PER_LEASE", LONG_LEASE_SECONDS * 5)


async def until_renewed(desk: Desk) -> None:
    """Wait until the worker has renewed the only lease of the store twice."""
    seen: set[int] = set()

    def is_renewed() -> bool:
        with closing(sqlite3.connect(desk.url.removeprefix("sqlite:///"), timeout=60)) as file:
            ((lease,),) = file.execute("SELECT lease FROM task_rows WHERE lease > 0").fetchall()
        seen.add(lease)
        return len(seen) == 3

    await until(is_renewed)


def _logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in line for line in caplog.messages)
