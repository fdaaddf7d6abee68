"""Outages of the store are no lost runs, and no task waits for a suspect while there is room."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.model.identity import ANONYMOUS
from antiphon.runtime.tasks import claimed_task, lease_thread, worker
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.lease_thread import Outages
from antiphon.runtime.tasks.records import task_of
from antiphon.store import open_store
from tests.runtime.faulty_store import (
    FaultyStore,
    created_task,
    end_of,
    log_entries,
    open_faulty_store,
    queued_task,
)
from tests.support.lease_time import LeaseTime
from tests.support.loop_time import LoopTime
from tests.support.polling import until

MOST_ATTEMPTS = 5
SHORT = Limits(lease_seconds=0.6, drain_timeout=0.0)
LEASE = 1000.0
LONG = Limits(lease_seconds=LEASE, drain_timeout=0.0)
"""For tasks that must not be lost before a test moves the clock of leases."""


class Clock:
    """The clock of a store."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_until(self, condition: bool, seconds: float) -> bool:
        """Return the condition, and let so much time pass if it is not true."""
        self.now += 0 if condition else seconds
        return condition


class CutStore:
    """A store that one process does not reach while it is cut off. Its thread for leases does not either."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_cut = False
        self.unwritable = ""
        """The id of a task that cannot be written."""
        self.refused: Counter[str] = Counter()
        """How often each method was cut off, and how often the task was not written (`damaged`)."""

    def _checked(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **kwargs: Any) -> Any:
            if call.__name__ == "append" and args[0] == self.unwritable and not self.is_cut:
                self.refused["damaged"] += 1
                raise StoreUnavailable("The row of this task is damaged.")
            if self.is_cut:
                self.refused[name] += 1
                raise StoreUnavailable("The test has cut this process off.")
            return call(*args, **kwargs)

        return checked

    def lease_keeper(self) -> Any:
        keeper = self._store.lease_keeper()
        if keeper is not None:
            keeper.renew = self._checked("renew", keeper.renew)
        return keeper

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._checked(name, found) if asyncio.iscoroutinefunction(found) else found


class Fleet:
    """Servers on one SQLite file, each with a store that can be cut off, and a tool that waits for a gate."""

    def __init__(self, directory: Path, size: int, limits: Limits = LONG) -> None:
        url = f"sqlite:///{directory}/tasks.db"
        self.gate = asyncio.Event()
        self.runs: list[int] = []
        self.stores = [CutStore(open_store(url)) for _ in range(size)]
        self.servers = [self._server(number, limits) for number in range(size)]

    def _server(self, number: int, limits: Limits) -> Server:
        store: Any = self.stores[number]
        server = Server("fleet", store=store, limits=limits)

        async def wait() -> str:
            self.runs.append(number)
            await self.gate.wait()
            return "waited"

        @server.tool(task="optional")
        async def long(ctx: Context) -> str:
            return await ctx.step(wait)

        return server


async def survived(store: Any, id: str) -> int:
    """Return how many workers say that they have lost the task in an outage."""
    return sum(bool(data.get("survived")) for _, data in await log_entries(store, id))


async def eventually(store: Any, id: str, reports: int) -> None:
    """Wait until so many workers say so. The time moves past the delays between their tries."""

    async def has_reports() -> bool:
        has_all = await survived(store, id) >= reports
        LoopTime.here().advance(0 if has_all else 1)
        return has_all

    await until(has_reports)


@pytest.mark.usefixtures("quick_claims")
async def test_outages_alone_do_not_destroy_a_task(tmp_path: Path, lease_time: LeaseTime) -> None:
    fleet = Fleet(tmp_path, 2)
    async with AsyncExitStack() as stack:
        for server in fleet.servers:
            await stack.enter_async_context(server.running())
        id = await queued_task(fleet.stores[0], "long")
        for outage in range(1, MOST_ATTEMPTS + 3):
            await until(lambda count=outage: len(fleet.runs) >= count)  # type: ignore[misc]
            holder = fleet.runs[-1]
            fleet.stores[holder].is_cut = True
            lease_time.advance(LEASE)
            await until(lambda count=outage: len(fleet.runs) > count)  # type: ignore[misc]
            fleet.stores[holder].is_cut = False
            await eventually(fleet.stores[holder], id, outage)
        fleet.gate.set()
        task = await end_of(fleet.stores[0], id)
        attempts = [
            data["attempt"] for _, data in await log_entries(fleet.stores[0], id) if "attempt" in data
        ]
    assert task.state == "done"
    assert max(attempts) == 1


@pytest.mark.usefixtures("quick_claims")
async def test_a_worker_that_was_cut_off_reports_when_it_reaches_the_store_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lease_time: LeaseTime
) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    fleet = Fleet(tmp_path, 2)
    async with AsyncExitStack() as stack:
        for server in fleet.servers:
            await stack.enter_async_context(server.running())
        id = await queued_task(fleet.stores[0], "long")
        await until(lambda: len(fleet.runs) == 1)
        cut = fleet.stores[fleet.runs[0]]
        cut.is_cut = True
        lease_time.advance(LEASE)
        await until(lambda: len(fleet.runs) == 2)
        other = fleet.stores[fleet.runs[1]]
        assert await survived(other, id) == 0
        cut.is_cut = False
        await eventually(other, id, 1)
        fleet.gate.set()
        await end_of(other, id)
    assert f"Task {id} was lost in an outage, and its log says so." in caplog.text


async def test_a_lease_that_was_lost_without_an_outage_is_not_excused() -> None:
    store: Any = FaultyStore()
    await store.open()
    server, started, stopped = Server("tests", store=store, limits=LONG), asyncio.Event(), asyncio.Event()

    @server.tool(task="optional")
    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    id = await queued_task(store, "long")
    async with server.running():
        await started.wait()
        await store.release(id, 1)
        await store.claim("thief", lease=LEASE, limit=1)
        await LoopTime.here().advance_until(stopped.is_set, LEASE)
    await store.open()
    assert await survived(store, id) == 0


@pytest.mark.parametrize(
    ("missed", "worked", "is_outage"),
    [(5.0, 0.1, True), (5.0, 4.9, False), (0.1, 0.0, False)],
    ids=["the process was stopped", "a function kept it busy", "it turned in time"],
)
async def test_a_process_that_was_stopped_is_told_from_one_that_was_busy(
    monkeypatch: pytest.MonkeyPatch, missed: float, worked: float, is_outage: bool
) -> None:
    now = {"clock": 100.0, "worked": 1.0}
    monkeypatch.setattr(lease_thread, "lease_clock", lambda: now["clock"])
    monkeypatch.setattr(time, "process_time", lambda: now["worked"])
    store: Any = await open_faulty_store()
    task, created, token = await created_task(store, worker="me")
    claimed = ClaimedTask(
        store,
        task,
        created,
        owner=ANONYMOUS,
        version=1,
        token=token,
        journal={},
        responses={},
        lease=1.0,
        since=100.0,
    )
    outages = Outages(0.2)
    outages.note_turn()
    now["clock"] += missed
    now["worked"] += worked
    assert outages.explain(claimed) is is_outage  # before the thread turns again, and afterwards
    outages.note_turn()
    assert outages.explain(claimed) is is_outage


class Surviving:
    """Two processes on a store with a clock. The first runs a task, and is cut off until the task is lost.

    The function waits for a gate of its process.
    """

    def __init__(self, **options: Any) -> None:
        self.clock, self.runs = Clock(), list[str]()
        self.gates = {"first": asyncio.Event(), "second": asyncio.Event()}
        self.resumes = options.get("resume", True)
        self.memory: Any = FaultyStore(self.clock)
        self.cut = CutStore(self.memory)
        self.first, self.second = (
            self._process("first", self.cut, options),
            self._process("second", self.memory, options),
        )

    def _process(self, name: str, store: Any, options: dict[str, Any]) -> Server:
        server = Server("tests", store=store, limits=SHORT)

        @server.tool(task="optional", **options)
        async def long() -> str:
            self.runs.append(name)
            await self.gates[name].wait()
            return name

        return server

    async def lose(self, stack: AsyncExitStack) -> str:
        """Let the first process lose its task, and the second one find it."""
        await self.memory.open()
        await stack.enter_async_context(self.first.running())
        id = await queued_task(self.memory, "long", resume=self.resumes)
        await until(lambda: self.runs == ["first"])
        self.cut.is_cut = True
        await until(lambda: self.cut.refused["renew"])
        await stack.enter_async_context(self.second.running())
        self.clock.now += SHORT.lease_seconds + 0.1
        await until(lambda: self.memory.calls["release"] == 1)
        return id


async def test_a_task_without_another_attempt_runs_again_if_its_worker_reports_an_outage() -> None:
    surviving = Surviving(max_attempts=1)
    async with AsyncExitStack() as stack:
        id = await surviving.lose(stack)
        surviving.cut.is_cut = False
        await eventually(surviving.memory, id, 1)
        for gate in surviving.gates.values():
            gate.set()
        surviving.clock.now += 2 * SHORT.lease_seconds + 0.1
        assert (await end_of(surviving.memory, id)).state == "done"


async def test_a_run_that_ends_because_the_store_stays_away_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claimed_task, "STORE_OUTAGE_SECONDS", -1.0)
    surviving = Surviving()
    async with AsyncExitStack() as stack:
        await surviving.memory.open()
        await stack.enter_async_context(surviving.first.running())
        id = await queued_task(surviving.memory, "long")
        await until(lambda: surviving.runs == ["first"])
        surviving.cut.is_cut = True
        surviving.gates["first"].set()  # its result cannot be written
        await until(lambda: f"Stopped running task {id}" in caplog.text)
        await stack.enter_async_context(surviving.second.running())
        surviving.clock.now += SHORT.lease_seconds + 0.1
        await until(lambda: surviving.runs == ["first", "second"])
        surviving.cut.is_cut = False
        await eventually(surviving.memory, id, 1)
        surviving.gates["second"].set()
        assert (await end_of(surviving.memory, id)).state == "done"
        assert await survived(surviving.memory, id) == 1


@pytest.mark.parametrize("options", [{"max_attempts": 1}, {"resume": False}], ids=["one attempt", "resume"])
async def test_a_task_without_another_attempt_fails_if_nobody_reports_an_outage_for_two_leases(
    options: dict[str, Any],
) -> None:
    surviving = Surviving(**options)
    async with AsyncExitStack() as stack:
        id = await surviving.lose(stack)
        assert not task_of(await surviving.memory.get(id)).has_ended
        surviving.clock.now += 2 * SHORT.lease_seconds + 0.1
        task = await end_of(surviving.memory, id)
        surviving.cut.is_cut = False  # only now, so that it could report nothing
    assert task.fault is not None
    assert "was lost" in task.fault.message
    assert surviving.runs == ["first"]


async def test_a_function_that_must_not_run_again_does_not_whoever_lives() -> None:
    surviving = Surviving(resume=False)
    async with AsyncExitStack() as stack:
        id = await surviving.lose(stack)
        surviving.cut.is_cut = False
        renewals = surviving.memory.calls["renew"]
        await until(lambda: not surviving.first.engine.tasks.running)
        surviving.clock.now += 2 * SHORT.lease_seconds + 0.1
        task = await end_of(surviving.memory, id)
        assert surviving.memory.calls["renew"] > renewals
    assert task.fault is not None
    assert surviving.runs == ["first"]


async def test_a_function_that_must_not_run_again_fails_at_once_after_its_worker_was_stopped() -> None:
    surviving = Surviving(resume=False)
    await surviving.memory.open()
    async with surviving.first.running():
        id = await queued_task(surviving.memory, "long", resume=False)
        await until(lambda: surviving.runs == ["first"])
    await surviving.memory.open()
    async with surviving.second.running():
        task = await end_of(surviving.memory, id)
    assert task.fault is not None
    assert "its worker was lost, and its tool has resume=False" in task.fault.message


@pytest.mark.parametrize("lost", [2, 3])
async def test_no_task_waits_because_others_were_lost(lost: int) -> None:
    clock, count = Clock(), 12
    store: Any = FaultyStore(clock)
    await store.open()
    server, started, gate = Server("tests", store=store), set[int](), asyncio.Event()

    @server.tool(task="optional")
    async def long(number: int) -> int:
        started.add(number)
        await gate.wait()
        return number

    ids = [
        await queued_task(store, "long", {"number": number}, id=number, lost=lost) for number in range(count)
    ]
    async with server.running():
        await until(lambda: store.calls["release"] >= count)
        clock.now += 2.0 ** (lost - 2) + 0.1  # the delay after so many lost workers, and no more
        await until(lambda: len(started) == count)
        gate.set()
        assert {(await end_of(store, id)).state for id in ids} == {"done"}


async def test_a_suspect_runs_in_another_process_while_one_runs_here() -> None:
    clock = Clock()
    store: Any = FaultyStore(clock)
    await store.open()
    started, gate = list[str](), asyncio.Event()

    def process(name: str) -> Server:
        server = Server("tests", store=store, limits=Limits(lease_seconds=3600.0))

        @server.tool(task="optional")
        async def long() -> str:
            started.append(name)
            await gate.wait()
            return name

        return server

    ids = [await queued_task(store, "long", id=number, lost=3, group=2) for number in range(2)]
    async with process("first").running():
        await until(lambda: store.calls["release"] >= 2)
        clock.now += 2.1  # the delay of the third lost worker
        await until(lambda: len(started) == 1 and store.calls["release"] >= 3)
        async with process("second").running():
            # Whoever claims it: a process whose slot is taken keeps it for less than half a second.
            await until(lambda: clock.pass_until(len(started) == 2, 0.5))
            gate.set()
            assert {(await end_of(store, id)).state for id in ids} == {"done"}
    assert sorted(started) == ["first", "second"]


class UnwritableStore(FaultyStore):
    """A store that cannot write one task, though it can write the others."""

    unwritable = ""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name != "append":
            return found

        async def append(id: str, *args: Any, **kwargs: Any) -> Any:
            if id == self.unwritable:
                raise StoreUnavailable("The row of this task is damaged.")
            return await found(id, *args, **kwargs)

        return append


@pytest.mark.parametrize("lost", [1, MOST_ATTEMPTS], ids=["to begin", "to give up"])
async def test_a_task_that_cannot_be_written_does_not_keep_others_from_being_claimed(lost: int) -> None:
    store: Any = UnwritableStore()
    await store.open()
    room = {} if lost == 1 else {"max_running_tasks": 1}  # what is only ended takes no room
    server = Server("tests", store=store, limits=Limits(drain_timeout=0.0, **room))

    @server.tool(task="optional")
    async def count(number: int) -> int:
        return number

    store.unwritable = await queued_task(store, "count", {"number": 1}, id=1, lost=lost)
    async with server.running():
        await until(lambda: store.calls["renew"] > 0 or store.calls["claim"] > 1)
        later = await queued_task(store, "count", {"number": 2}, id=2)
        assert (await end_of(store, later)).state == "done"


@pytest.mark.usefixtures("quick_claims")
async def test_a_report_that_cannot_be_written_delays_one_claim_and_not_each_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lease_time: LeaseTime
) -> None:
    waits, wait = [], asyncio.wait

    async def noted(tasks: Any, *, timeout: float | None = None, **how: Any) -> Any:
        if timeout == worker.REPORT_WAIT_SECONDS:
            waits.append(tasks)
        return await wait(tasks, timeout=timeout, **how)

    monkeypatch.setattr(asyncio, "wait", noted)
    fleet = Fleet(tmp_path, 1)
    (server,), (store,) = fleet.servers, fleet.stores

    @server.tool(task="optional")
    async def quick() -> None: ...

    thief = open_store(f"sqlite:///{tmp_path}/tasks.db")
    async with server.running():
        await thief.open()
        id = await queued_task(store, "long")
        await until(lambda: len(fleet.runs) == 1)
        store.is_cut = True
        lease_time.advance(LEASE)
        await until(lambda: thief.claim("thief", lease=600.0, limit=1))
        store.unwritable, store.is_cut = id, False
        await until(lambda: store.refused["damaged"] > 0)
        for number in range(4):
            await end_of(thief, await queued_task(thief, "quick", id=number))
        assert len(waits) <= 1
    await thief.close()
