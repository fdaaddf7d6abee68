"""Three servers and two workers behind a load balancer, with one process killed after the other."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from itertools import cycle
from pathlib import Path

from antiphon.store import open_store
from tests.instances.fleet import Fleet, Member, fleet
from tests.instances.flows import DIALECTS, FLOWS, begin, redeem, speaker
from tests.support import http
from tests.support.polling import until
from tests.support.postgres import Postgres

KILLS = 8


async def kill_in_turn(crew: Fleet, enough: asyncio.Event, done: asyncio.Event) -> None:
    """Kill servers and workers in turn, each once the one before has started again, and at least `KILLS`."""
    order = cycle(member for pair in zip(crew.servers, crew.workers * 2, strict=False) for member in pair)
    for killed, member in enumerate(order):
        if killed == KILLS:
            enough.set()
        if enough.is_set() and done.is_set():
            return
        member.kill()
        member.start()
        await member.ready()


async def test_every_flow_of_the_seeds_succeeds_while_processes_are_killed(
    database: Postgres, tmp_path: Path
) -> None:
    url = database.url()
    async with fleet(url, tmp_path) as crew:
        enough, done = asyncio.Event(), asyncio.Event()
        killing = asyncio.create_task(kill_in_turn(crew, enough, done))

        async def go_on(dialect: str) -> list[str]:
            """Run all flows repeatedly, until enough processes were killed."""
            client, ids = await speaker(dialect, crew.port), []
            while True:
                results = await asyncio.gather(*(flow(client) for flow in FLOWS))
                ids += [id for id, _ in results if id]
                if enough.is_set() or killing.done():
                    return ids

        ids = [id for found in await asyncio.gather(*map(go_on, DIALECTS)) for id in found]
        done.set()
        await killing
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
    url, gate = database.url(), tmp_path / "gate"
    store = open_store(url)
    await store.open()
    async with fleet(url, tmp_path, servers=1, workers=2, GATE=str(gate)) as crew:
        client = await speaker("2026-07-28", crew.port)
        id = await begin(client, "once", word="w")
        stalled = await until(lambda: _running_worker(crew))
        assert stalled is not None
        await until(lambda: (tmp_path / "effects").read_text() == "began w\n")
        stalled.process.send_signal(signal.SIGSTOP)
        try:
            # The other worker takes the task over when the lease has ended, and the task ends there.
            (other,) = set(crew.workers) - {stalled}
            await until(lambda: _runs_a_task(other))
            gate.touch()
            assert await redeem(client, id) == ["once w"]
            before = await store.read(id)
        finally:
            stalled.process.send_signal(signal.SIGCONT)
        await until(lambda: _runs_no_task(stalled))
        assert await store.read(id) == before
    await store.close()


async def _running_worker(crew: Fleet) -> Member | None:
    """Return the worker that runs the task."""
    for member in crew.workers:
        if await _runs_a_task(member):
            return member
    return None


async def _runs_a_task(member: Member) -> bool:
    return b"antiphon_tasks_running 1\n" in await _metrics(member)


async def _runs_no_task(member: Member) -> bool:
    return b"antiphon_tasks_running 0\n" in await _metrics(member)


async def _metrics(member: Member) -> bytes:
    return (await http.request(member.port, "GET", {}, path="/metrics")).body
