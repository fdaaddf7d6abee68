"""PostgreSQL is killed and restarted: no confirmed task is lost, and all processes continue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.instances.fleet import fleet
from tests.instances.flows import RETRY_SECONDS, begin, redeem, result_of, speaker
from tests.instances.pair import SECRET
from tests.promises.speaking import Patient, reach
from tests.store.support import task
from tests.support.polling import until
from tests.support.postgres import Postgres
from tests.support.serving import serving
from tests.support.speakers import Modern

TIMES = 5
LOADS = 6


@pytest.fixture
async def killable(database: Postgres) -> AsyncIterator[Postgres]:
    """A PostgreSQL that may be killed: the one of all tests, of which only one runs at a time."""
    connection = await asyncpg.connect(database.dsn)
    await connection.execute("CHECKPOINT")  # so that it does not have to recover what other tests wrote
    await connection.close()
    yield database
    if not database.answers():
        await asyncio.to_thread(database.start)


async def test_postgres_is_killed_and_restarted_under_load(killable: Postgres, tmp_path: Path) -> None:
    url, gate, effects = killable.url(), tmp_path / "gate", tmp_path / "effects"
    gate.touch()
    async with fleet(url, tmp_path, servers=2, workers=2, LEASE="4.0", GATE=str(gate)) as crew:
        client = await speaker("2026-07-28", crew.port)
        kept: dict[str, str] = {}
        over = False

        async def load(number: int) -> None:
            count = 0
            while not over:
                word = f"{number}.{count}"
                kept[await begin(client, "once", word=word)] = word
                await until(lambda line=f"ended {word}\n": line in effects.read_text(), RETRY_SECONDS)
                count += 1

        async def load_goes_on() -> None:
            before = len(kept)
            await until(lambda: len(kept) >= before + LOADS, RETRY_SECONDS)

        def halfway() -> set[str]:
            """Return the words of the runs between their steps, maybe with some of their second runs."""
            lines = effects.read_text().splitlines()
            began, ended = (
                {line[6:] for line in lines if line.startswith(each)} for each in ("began", "ended")
            )
            return began - ended

        loads = [asyncio.create_task(load(number)) for number in range(LOADS)]
        for _ in range(TIMES):
            await load_goes_on()
            gate.unlink()
            await until(lambda: len(halfway()) == LOADS, RETRY_SECONDS)
            await asyncio.to_thread(killable.kill)
            await _plain_answers_go_on(crew.port)
            await _promises_are_refused_with_a_hint(crew.port)
            gate.touch()
            await asyncio.to_thread(killable.start)
        await load_goes_on()
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
    refused = await Patient(port).call("once", word="x")
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    assert "try again" in refused.error["message"]


async def test_a_run_waits_while_postgres_is_down_and_continues_after(killable: Postgres) -> None:
    gate = asyncio.Event()
    ran: Counter[str] = Counter()
    store = open_store(killable.url())
    refused = _note_refusals(store)
    server = Server(
        "patient",
        store=store,
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
        await until(lambda: refused and ran["step"])
        assert (await client.ask("tasks/get", {"taskId": id})).status == 503
        await asyncio.to_thread(killable.start)
        done = await _finished_task(client, id)
        assert done["result"]["content"][0]["text"] == "stepped 1"
        assert ran == {"began": 1, "step": 1}


def _note_refusals(store: Store) -> list[str]:
    """Return the list of the appends that will have failed because the store was away."""
    append, refused = store.append, list[str]()

    async def noting(id: str, *arguments: Any, **options: Any) -> int:
        try:
            return await append(id, *arguments, **options)
        except StoreUnavailable:
            refused.append(id)
            raise

    store.append = noting  # type: ignore[method-assign]
    return refused


async def _finished_task(client: Patient, id: str) -> dict[str, object]:
    """Return the finished task. The first requests may fail, because the store is not back yet."""

    async def is_back() -> bool:
        return (await client.ask("tasks/get", {"taskId": id})).status != 503

    await until(is_back)
    return await reach(client, id, "completed")


async def test_a_store_works_again_after_postgres_restarts_without_being_reopened(killable: Postgres) -> None:
    url = killable.url()
    store = open_store(url)
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
            with pytest.raises(StoreUnavailable, match="try again"):
                await use()
        await asyncio.to_thread(killable.start)
        await until(lambda: _is_back(store))
        assert await store.append("a", [("x", 2)], expect=1, phase="ready", head=None) == 2
        assert await watch.wait(60)
        other = open_store(url)
        await other.open()
        await other.append("a", [("x", 3)], expect=2, phase="ready", head=None)
        assert await watch.wait(60)
        await other.publish("news", "back")
        async with asyncio.timeout(60):
            assert await anext(messages) == "back"
        await other.close()
    await store.close()


async def _is_back(store: Store) -> bool:
    try:
        await store.probe()
    except StoreUnavailable:
        return False
    return True
