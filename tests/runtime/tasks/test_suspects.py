"""Tasks during which workers were lost: the one that is the reason is given up, and the others are not."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import pytest

from antiphon import Limits, Server
from antiphon.errors import InternalError
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.tasks.attempts import SuspectGroup, beginning, check_attempts, note_group
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.claims import claimed_task, read_history, release
from tests.runtime.faulty_store import FaultyStore, end_of, log_entries, queued_task
from tests.support.polling import until

LEASE = 15.0


class Clock:
    """The clock of a store."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def step_of(most: int) -> Tool:
    """Return a tool whose tasks are tried so many times."""
    server = Server("tests")

    @server.tool(task="optional", max_attempts=most)
    async def step() -> None: ...

    return server.engine.registry.tool("step")


class Process:
    """A process that runs tasks of long steps, in which some kill it. All happens when a test says so."""

    def __init__(self, store: Any, tool: Tool) -> None:
        self.store, self.tool = store, tool
        self.suspects = SuspectGroup()
        self.running: list[ClaimedTask] = []

    async def claim(self, limit: int = 100) -> list[str]:
        """Claim tasks that are ready and run them; return those that are given up."""
        given_up, lost = list[str](), list[tuple[ClaimedTask, dict[str, Any]]]()
        for claim in await self.store.claim("process", lease=LEASE, limit=limit):
            history = await read_history(self.store, claim)
            assert history is not None
            claimed = claimed_task(self.store, claim, history, lease=LEASE, since=0.0)
            found = await check_attempts(claimed, history, self.tool)
            if isinstance(found, InternalError):
                await self.end(claimed)
                given_up.append(claimed.task.id)
            elif found and (noted := beginning(claimed, history, self.tool)) is not None:
                lost.append((claimed, noted))
            elif found:
                self.running.append(claimed)
        admitted = self.suspects.admit([(claimed, self.tool) for claimed, _ in lost])
        await note_group(self.suspects.outgrown())
        for claimed, noted in lost:
            if claimed in admitted:
                await claimed.write("recorded", {**noted, "group": claimed.group})
                self.running.append(claimed)
            else:
                await release(claimed, delay=self.suspects.refusal_delay())
        return given_up

    async def end(self, claimed: ClaimedTask) -> None:
        await claimed.write("ended", {"result": {"content": []}})
        self.suspects.leave(claimed)


@pytest.mark.parametrize("most", [2, 3, 5])
@pytest.mark.parametrize("healthy", [1, 15])
async def test_a_deadly_task_is_given_up_soon_and_no_healthy_one(
    clock: Clock, most: int, healthy: int
) -> None:
    store, tool, kills = FaultyStore(clock), step_of(most), 0
    await store.open()
    deadly = await queued_task(store, "step", id=0)
    ids = [await queued_task(store, "step", id=number) for number in range(1, healthy + 1)]
    given_up, ended = list[str](), Counter[str]()
    while len(given_up) + len(ended) < healthy + 1:
        process = Process(store, tool)
        given_up += await process.claim()
        if any(claimed.task.id == deadly for claimed in process.running):
            kills += 1  # however long the steps beside it have run
        else:
            for claimed in process.running:
                await process.end(claimed)
                ended[claimed.task.id] += 1
        clock.now += 61  # the longest delay, and longer than a lease
    assert (given_up, ended) == ([deadly], Counter(ids))
    # In the second run the log says how many ran beside it, and from the third lost one on they are halved.
    assert kills <= max(most, min(most, 3) + math.log2(healthy + 1))


class Waiting:
    """A server whose tool waits for a gate, and what has started in it."""

    def __init__(self, store: Any, gate: asyncio.Event) -> None:
        self.started: set[int] = set()
        self.server = Server("tests", store=store, limits=Limits(lease_seconds=3600.0))

        @self.server.tool(task="optional")
        async def long(number: int) -> int:
            self.started.add(number)
            await gate.wait()
            return number


@pytest.mark.parametrize(("group", "in_one"), [(0, 12), (12, 6), (5, 2)])
async def test_suspects_run_in_groups_half_as_large_as_the_one_in_which_they_died(
    clock: Clock, group: int, in_one: int
) -> None:
    store, gate, count = FaultyStore(clock), asyncio.Event(), 12
    await store.open()
    ids = [
        await queued_task(store, "long", {"number": number}, id=number, lost=3, group=group)
        for number in range(count)
    ]
    first, second = Waiting(store, gate), Waiting(store, gate)
    async with first.server.running():
        await until(lambda: store.calls["release"] >= count)
        clock.now += 2.1  # the delay of the third lost worker
        # Each of them has begun, or was given back.
        await until(lambda: store.calls["release"] + len(first.started) >= 2 * count)
        assert len(first.started) == in_one
        async with second.server.running():

            def others_have_begun() -> bool:
                clock.now += 0.5
                return len(second.started) >= min(in_one, count - in_one)

            await until(others_have_begun)
            assert (len(first.started), first.started & second.started) == (in_one, set())
            gate.set()

            async def all_have_ended() -> bool:
                clock.now += 5.0
                return bool(await store.count("ended") == count)

            await until(all_have_ended)
            assert {(await end_of(store, id)).state for id in ids} == {"done"}


async def test_a_task_that_runs_alone_learns_that_another_lost_one_begins_beside_it(clock: Clock) -> None:
    store, gate = FaultyStore(clock), asyncio.Event()
    await store.open()
    alone = await queued_task(store, "long", {"number": 1}, id=1, lost=3, group=2)
    waiting = Waiting(store, gate)
    async with waiting.server.running():
        await until(lambda: store.calls["release"] >= 1)
        clock.now += 2.1
        await until(lambda: waiting.started == {1})
        assert [data["group"] for _, data in await log_entries(store, alone) if "group" in data][-1] == 1
        # It has lost one worker only, and waits for nobody.
        beside = await queued_task(store, "long", {"number": 2}, id=2, lost=1)
        await until(lambda: waiting.started == {1, 2})
        groups = {
            id: [data["group"] for _, data in await log_entries(store, id) if "group" in data]
            for id in (alone, beside)
        }
        gate.set()
        assert {(await end_of(store, id)).state for id in (alone, beside)} == {"done"}
    assert (groups[alone][-2:], groups[beside]) == ([1, 2], [2])


async def test_a_suspect_does_not_wait_for_a_task_that_is_none_and_is_not_given_up_beside_it(
    clock: Clock,
) -> None:
    store, gate = FaultyStore(clock), asyncio.Event()
    await store.open()
    waiting = Waiting(store, gate)
    async with waiting.server.running():
        beside = await queued_task(store, "long", {"number": 1}, id=1, lost=1)
        await until(lambda: waiting.started == {1})
        suspect = await queued_task(store, "long", {"number": 2}, id=2, lost=3, group=2)
        await until(lambda: store.calls["release"] >= 1)
        clock.now += 2.1  # the delay of the third lost worker
        await until(lambda: waiting.started == {1, 2})
        groups = [data["group"] for _, data in await log_entries(store, suspect) if "group" in data]
        gate.set()
        assert {(await end_of(store, id)).state for id in (suspect, beside)} == {"done"}
    assert groups[-1] == 2
