"""Tasks that are cancelled or expire while a worker has them, or should have them, clean up once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import Context
from antiphon.cli.tasks.store_tasks import StoreTasks
from antiphon.model.identity import Principal
from antiphon.store import open_store
from tests.asking.driving import accept
from tests.promises.speaking import Patient, begin, look, reach
from tests.promises.test_unwinding import (
    HOUR,
    UNKNOWN,
    Desk,
    renew_often,
    until_deleted,
    until_renewed,
    until_unwound,
)
from tests.promises.tooling import Ahead
from tests.support.leases import LONG_LEASE_SECONDS, end_leases
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Bare

UNWOUND = ["reserved", "given back", "closed"]


async def park(desk: Desk, tool: str = "reserve", ttl: int | None = None) -> str:
    """Begin a task in a server that stops as soon as the task waits for an answer; return its id."""
    async with serving(desk.server) as address:
        client = Bare(address.port)
        id = str((await begin(client, tool, ttl))["taskId"])
        await reach(client, id, "input_required")
    return id


async def answer_without_server(tasks: StoreTasks, id: str) -> None:
    record = await tasks.record(id)
    await tasks.service.answer(id, Principal(record.principal), {"take": accept(name="Ada")})


@pytest.mark.parametrize("lost", [False, True], ids=["unclaimed", "worker lost"])
async def test_a_task_that_was_answered_and_is_cancelled_before_a_worker_runs_it_cleans_up(
    tmp_path: Path, lost: bool
) -> None:
    desk = Desk(tmp_path)
    id = await park(desk)
    async with StoreTasks(desk.url) as tasks:
        await answer_without_server(tasks, id)
        if lost:
            assert len(await tasks.store.claim("killed", lease=LONG_LEASE_SECONDS, limit=1)) == 1
        assert await tasks.cancel(id) == "cancelled"
    assert await end_leases(desk.url) == lost
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        assert (await look(Bare(address.port), id))["status"] == "cancelled"
        assert await until_unwound(desk, id) is True
    assert desk.happened == UNWOUND


@pytest.mark.parametrize("lost", [False, True], ids=["unclaimed", "worker lost"])
async def test_a_task_that_was_answered_and_expires_before_a_worker_runs_it_cleans_up(
    tmp_path: Path, lost: bool, ahead: Ahead
) -> None:
    desk = Desk(tmp_path)
    id = await park(desk, ttl=HOUR)
    async with StoreTasks(desk.url) as tasks:
        await answer_without_server(tasks, id)
        if lost:
            assert len(await tasks.store.claim("killed", lease=LONG_LEASE_SECONDS, limit=1)) == 1
        ahead(hours=1)
        await tasks.remove_expired()
        assert (await tasks.store.read(id))[-1].kind == "cancelled"
    assert await end_leases(desk.url) == lost
    desk = Desk(tmp_path)
    async with serving(desk.server) as address:
        await until(lambda: desk.happened == UNWOUND)
        assert (await Bare(address.port).ask("tasks/get", {"taskId": id})).error["message"] == UNKNOWN
        await until_deleted(desk, id)


async def test_a_task_in_postgresql_that_was_answered_and_is_cancelled_cleans_up(
    tmp_path: Path, database: Any
) -> None:
    desk = Desk(tmp_path, database.url())
    id = await park(desk)
    async with StoreTasks(desk.url) as tasks:
        await answer_without_server(tasks, id)
        assert await tasks.cancel(id) == "cancelled"
    desk = Desk(tmp_path, desk.url)
    async with serving(desk.server):
        assert await until_unwound(desk, id) is True
    assert desk.happened == UNWOUND


async def test_a_task_that_never_began_ends_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.server.configure(run_tasks=False)
    async with serving(desk.server) as address:
        client = Patient(address.port)
        id = (await begin(client, "running"))["taskId"]
        await client.ask("tasks/cancel", {"taskId": id})
        assert (await look(client, id))["status"] == "cancelled"
        assert [kind for kind, _ in await desk.log(id)] == ["created", "cancelled"]
        assert (await desk.store.count("ready"), await desk.store.count("ended")) == (0, 1)


@pytest.mark.parametrize("message", ["arrives", "gets lost"])
async def test_the_worker_that_runs_a_cancelled_task_unwinds_it_and_no_other_run_follows(
    tmp_path: Path, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker keeps its lease while it cleans up."""
    renew_often(monkeypatch)
    desk, other = Desk(tmp_path), Desk(tmp_path)
    async with serving(desk.server) as address, StoreTasks(desk.url) as tasks:
        client = Patient(address.port)
        id = (await begin(client, "running"))["taskId"]
        await until(lambda: desk.happened == ["runs"])
        async with serving(other.server):
            if message == "gets lost":

                async def publish(*_: Any) -> None:
                    pass

                monkeypatch.setattr(tasks.relay, "publish", publish)
            assert await tasks.cancel(id) == "cancelled"
            assert (await look(client, id))["status"] == "cancelled"
            await until(lambda: desk.happened == ["runs", "cleans up"])
            await until_renewed(desk)
            desk.may_clean.set()
            assert await until_unwound(desk, id) is True
            assert await desk.store.count("ready") == 0
    assert desk.happened == ["runs", "cleans up", "clean", "left"]


async def test_a_worker_that_dies_while_it_unwinds_is_followed_by_another(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    id = await park(desk)
    async with StoreTasks(desk.url) as tasks:
        await answer_without_server(tasks, id)
        (claim,) = await tasks.store.claim("killed", lease=LONG_LEASE_SECONDS, limit=1)
        await tasks.cancel(id)
        # It learns that it has to stop, and keeps the task while it cleans up.
        assert await tasks.store.renew([(id, claim.token)], lease=LONG_LEASE_SECONDS) == set()
    assert await end_leases(desk.url) == 1
    desk = Desk(tmp_path)
    async with serving(desk.server):
        assert await until_unwound(desk, id) is True
    assert desk.happened == UNWOUND


async def test_a_task_that_must_not_run_again_is_not_run_to_unwind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)

    @desk.server.tool(task="required", resume=False)
    async def once(ctx: Context) -> str:
        desk.note("runs")
        await ctx.progress(1)
        return "done"

    desk.server.configure(run_tasks=False)
    async with serving(desk.server) as address:
        id = (await begin(Patient(address.port), "once"))["taskId"]
        await desk.store.claim("killed", lease=LONG_LEASE_SECONDS, limit=1)
        await Patient(address.port).ask("tasks/cancel", {"taskId": id})
    assert await end_leases(desk.url) == 1
    desk.store = open_store(desk.url)
    desk.server.configure(store=desk.store, run_tasks=True)
    async with serving(desk.server):
        assert await until_unwound(desk, id) is False
    assert desk.happened == []
    assert any("resume=False" in line for line in caplog.messages)
