"""Workers report to those who ask which workers there are, and write nothing otherwise."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from antiphon import Client, Limits, Server, __version__
from antiphon.runtime.relay import WORKER_REPORTS
from antiphon.runtime.tasks.roll_call import RollCall
from antiphon.store import open_store
from tests.support.polling import forever, until


def made(name: str, store: str, **limits: int) -> Server:
    server = Server(name, store=store, limits=Limits(drain_timeout=0.2, **limits))  # type: ignore[arg-type]

    @server.tool(task="required")
    async def wait() -> str:
        await forever()
        return "waited"

    @server.tool
    async def quick() -> str:
        return "done"

    return server


async def test_workers_report_what_they_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    store = open_store(url)
    await store.open()
    roll = RollCall(store)
    await roll.open()
    async with Client(made("one", url, max_running_tasks=7)) as client, Client(made("two", url)):
        await client.submit("wait")
        assert roll.workers == []

        async def ask() -> None:
            while True:
                await roll.refresh(timeout=0.3)

        asking = asyncio.create_task(ask())
        await until(lambda: len(roll.workers) == 2 and roll.workers[0].report.running == 1)
        asking.cancel()
        one, two = roll.workers
        assert (one.report.server, two.report.server) == ("one", "two")
        assert (one.report.running, one.report.max_running) == (1, 7)
        assert "wait" in one.report.tools
        assert one.report.claims
        assert (one.report.pid, one.report.version) == (os.getpid(), __version__)
        assert one.report.started <= one.seen
        (lease,) = await store.leases()
        assert (lease.worker, lease.tool, lease.tasks) == (one.report.name, "wait", 1)
    seen = roll.workers[0].seen
    await roll.refresh(timeout=0.1)
    assert roll.workers[0].seen == seen, "a worker that has stopped is known for a while"
    await roll.close()
    await store.close()


async def test_reports_that_are_not_understood_are_left_out(tmp_path: Path) -> None:
    store = open_store("memory:")
    await store.open()
    roll = RollCall(store)
    await roll.open()
    await store.publish(WORKER_REPORTS, ["elsewhere", {"name": "w", "pid": "none"}])
    await store.publish(WORKER_REPORTS, ["elsewhere", None])
    await roll.refresh(timeout=0)
    assert roll.workers == []
    await roll.close()
    await store.close()
