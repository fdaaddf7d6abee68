"""PostgreSQL is killed and restarted: no confirmed task is lost, and all processes continue."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.store import open_store
from tests.instances.fleet import fleet
from tests.instances.flows import begin, redeem, result_of, speaker
from tests.instances.pair import SECRET
from tests.promises.speaking import Patient, reach
from tests.store.support import task
from tests.support.postgres import Postgres, postgres
from tests.support.serving import serving
from tests.support.speakers import Modern

TIMES = 5


@pytest.fixture(scope="module")
def killable() -> Iterator[Postgres]:
    """A PostgreSQL that may be killed."""
    with postgres() as server:
        yield server


async def test_postgres_is_killed_and_restarted_under_load(killable: Postgres, tmp_path: Path) -> None:
    url = killable.url()
    async with fleet(url, tmp_path, servers=2, workers=2, LEASE="4.0") as crew:
        client = await speaker("2026-07-28", crew.port)
        kept: dict[str, str] = {}
        over = False

        async def load(number: int) -> None:
            count = 0
            while not over:
                word = f"{number}.{count}"
                kept[await begin(client, "once", word=word, seconds=0.2)] = word
                count += 1
                await asyncio.sleep(0.1)  # no more than can be done meanwhile

        loads = [asyncio.create_task(load(number)) for number in range(6)]
        for _ in range(TIMES):
            before = len(kept)
            await asyncio.sleep(0.7)
            await asyncio.to_thread(killable.kill)
            await _plain_answers_go_on(crew.port)
            await _promises_are_refused_with_a_hint(crew.port)
            await asyncio.to_thread(killable.start)
            assert len(kept) > before
        await asyncio.sleep(0.5)
        over = True
        await asyncio.gather(*loads)
        for id, word in reversed(kept.items()):
            assert await redeem(client, id) == [f"once {word}"]
        assert [member.process.poll() for member in crew.all] == [None] * 4
    store = open_store(url)
    await store.open()
    for id in kept:
        log = await store.read(id)
        assert [entry.kind for entry in log if entry.kind == "ended"] == ["ended"]
        assert log[-1].kind == "ended"
        recorded = Counter(key for entry in log for key in entry.data.get("journal", {}))
        assert set(recorded.values()) <= {1}, "a step was recorded twice"
    await store.close()


async def _plain_answers_go_on(port: int) -> None:
    for _ in range(4):
        answer = await Modern(port).call("get_weather", city="Oslo")
        assert answer.text.startswith("Current weather in Oslo")


async def _promises_are_refused_with_a_hint(port: int) -> None:
    began = time.monotonic()
    refused = await Patient(port).call("once", word="x")
    assert time.monotonic() - began < 15
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    assert "try again" in refused.error["message"]


async def test_a_run_waits_while_postgres_is_down_and_continues_after(killable: Postgres) -> None:
    gate = asyncio.Event()
    ran: Counter[str] = Counter()
    server = Server(
        "patient",
        store=killable.url(),
        secrets=[SECRET],
        limits=Limits(lease_seconds=60.0, drain_timeout=0.5),
    )

    @server.tool(task="optional", poll_interval=0.05)
    async def work(ctx: Context) -> str:
        ran["began"] += 1
        await gate.wait()
        found = await ctx.step(step)
        return f"{found} {ran['began']}"

    def step() -> str:
        ran["step"] += 1
        return "stepped"

    async with serving(server) as address:
        client = Patient(address.port)
        id = result_of(await client.call("work"))["taskId"]
        await asyncio.to_thread(killable.kill)
        gate.set()
        await asyncio.sleep(0.5)
        assert (await client.ask("tasks/get", {"taskId": id})).status == 503
        await asyncio.to_thread(killable.start)
        done = await _finished_task(client, id)
        assert done["result"]["content"][0]["text"] == "stepped 1"
        assert ran == {"began": 1, "step": 1}


async def _finished_task(client: Patient, id: str) -> dict[str, object]:
    """Return the finished task. The first requests may fail, because the store is not back yet."""
    deadline = time.monotonic() + 20
    while (await client.ask("tasks/get", {"taskId": id})).status == 503:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return await reach(client, id, "completed")


async def test_a_store_works_again_after_postgres_restarts_without_being_reopened(killable: Postgres) -> None:
    store = open_store(killable.url())
    await store.open()
    await store.create(task("a"), [("x", 1)])
    async with store.watch("a") as watch, store.subscribe("news") as messages:
        await asyncio.to_thread(killable.kill)
        for use in (
            lambda: store.get("a"),
            lambda: store.append("a", [("x", 2)], expect=1, phase="ready", head=None),
            lambda: store.claim("w", lease=1, limit=1),
            lambda: store.publish("news", 1),
        ):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="try again"):
                await use()
            assert time.monotonic() - began < 10
        await asyncio.to_thread(killable.start)
        await asyncio.sleep(0.3)
        assert await store.append("a", [("x", 2)], expect=1, phase="ready", head=None) == 2
        assert await watch.wait(30)
        await store.publish("news", "back")
        async with asyncio.timeout(30):
            assert await anext(messages) == "back"
    await store.close()
