"""Three servers and two workers behind a load balancer, with one process killed every second."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

from antiphon.store import open_store
from tests.instances.fleet import Fleet, fleet
from tests.instances.flows import DIALECTS, FLOWS, begin, redeem, speaker
from tests.support.postgres import Postgres

KILLS = 8


async def kill_one_each_second(crew: Fleet, done: asyncio.Event) -> int:
    """Kill servers and workers in turn, and restart each at once."""
    killed = 0
    order = [member for pair in zip(crew.servers, crew.workers * 2, strict=False) for member in pair]
    while not done.is_set() or killed < KILLS:
        member = order[killed % len(order)]
        member.kill()
        member.start()
        killed += 1
        await asyncio.sleep(1.0)
    return killed


async def test_every_flow_of_the_seeds_succeeds_while_processes_are_killed(
    database: Postgres, tmp_path: Path
) -> None:
    url = database.url()
    async with fleet(url, tmp_path) as crew:
        done = asyncio.Event()
        killing = asyncio.create_task(kill_one_each_second(crew, done))

        async def go_on(dialect: str) -> list[str]:
            """Run all flows repeatedly, until enough processes were killed."""
            client, ids = await speaker(dialect, crew.port), []
            while True:
                results = await asyncio.gather(*(flow(client) for flow in FLOWS))
                ids += [id for id, _ in results if id]
                if killing.done() or enough.is_set():
                    return ids

        enough = asyncio.Event()
        asyncio.get_running_loop().call_later(KILLS, enough.set)
        ids = [id for found in await asyncio.gather(*map(go_on, DIALECTS)) for id in found]
        done.set()
        assert await killing >= KILLS
    assert len(ids) == len(set(ids)) >= 9
    store = open_store(url)
    await store.open()
    for id in ids:
        kinds = Counter(entry.kind for entry in await store.read(id))
        assert kinds["ended"] == 1, kinds
    await store.close()


async def test_a_worker_that_was_suspended_past_its_lease_writes_nothing(
    database: Postgres, tmp_path: Path
) -> None:
    url = database.url()
    async with fleet(url, tmp_path, servers=1, workers=2) as crew:
        client = await speaker("2026-07-28", crew.port)
        id = await begin(client, "once", word="w", seconds=1.0)
        staller = await _running_worker(crew, tmp_path)
        crew.workers[staller].process.send_signal(signal.SIGSTOP)
        try:
            assert await redeem(client, id) == ["once w"]
            store = open_store(url)
            await store.open()
            before = await store.read(id)
            crew.workers[staller].process.send_signal(signal.SIGCONT)
            await crew.workers[staller].ready()
            await asyncio.sleep(2.0)  # longer than what was left of the sleep that it was stopped in
            assert await store.read(id) == before
            await store.close()
        finally:
            crew.workers[staller].process.send_signal(signal.SIGCONT)


async def _running_worker(crew: Fleet, tmp_path: Path) -> int:
    """Return the index of the worker that runs the task, according to its metrics."""
    from tests.support import http

    while True:
        for number, member in enumerate(crew.workers):
            metrics = await http.request(member.port, "GET", {}, path="/metrics")
            if b"antiphon_tasks_running 1\n" in metrics.body and (tmp_path / "effects").read_text():
                return number
        await asyncio.sleep(0.02)
