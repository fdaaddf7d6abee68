"""Leases that end while a task runs: the run that lost its task stops, and the task goes on once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.runtime.tasks import repetition
from antiphon.runtime.tasks import worker as worker_module
from antiphon.store import open_store
from tests.runtime.faulty_store import FaultyStore, end_of, log_entries, queued_task
from tests.support.lease_time import LeaseTime
from tests.support.loop_time import LoopTime
from tests.support.polling import forever, turns, until

SHORT = Limits(lease_seconds=0.2, drain_timeout=0.0)
HOUR = 3600.0
LONG = Limits(lease_seconds=HOUR, drain_timeout=0.0)
"""For tasks that must not be lost: these leases end when a test moves their clock."""


async def opened() -> Any:
    store = FaultyStore()
    await store.open()
    return store


async def steal(store: Any, id: str, token: int = 1) -> int:
    """Take a task from the worker that runs it, as another worker does after the lease; return the token."""
    await store.release(id, token)
    (claim,) = await store.claim("thief", lease=HOUR, limit=1)
    assert claim.record.id == id
    return int(claim.token)


# A run that has lost its task


class Shop:
    """A server whose tools charge, and refund if that fails; the task is stolen while they charge."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.events: list[str] = []
        self.server = server = Server("shop", store=store, limits=Limits(drain_timeout=0.0))
        self.id = ""

        async def charge() -> str:
            self.events.append("charge")
            await steal(self.store, self.id)
            return "charged"

        def refund() -> str:
            self.events.append("refund")
            return "refunded"

        @server.tool(task="optional")
        async def buy(ctx: Context) -> str:
            try:
                return await ctx.step(charge)
            except Exception:
                return await ctx.step(refund)
            finally:
                self.events.append("finally")

        @server.tool(task="optional")
        async def buy_stubbornly(ctx: Context) -> str:
            for attempt in (ctx.step(charge), ctx.step(refund), ctx.emit("refunded"), ctx.elicit("?", str)):
                try:
                    await attempt
                    self.events.append("went on")
                except BaseException:
                    pass
            self.events.append("finally")
            return "bought"

        @server.tool(task="optional")
        def buy_in_a_thread(ctx: Context) -> str:
            try:
                return ctx.wait(ctx.step(charge))
            except Exception:
                return ctx.wait(ctx.step(refund))
            finally:
                self.events.append("finally")

        @server.tool(task="optional")
        async def buy_in_a_group(ctx: Context) -> str:
            try:
                async with asyncio.TaskGroup() as group:  # ignores a cancelled member
                    group.create_task(ctx.step(charge))
                self.events.append("went on")
            finally:
                self.events.append("finally")
            return "bought"

        @server.tool(task="optional")
        async def buy_and_fail(ctx: Context) -> str:
            try:
                return await ctx.step(charge)
            finally:
                self.events.append("finally")
                raise RuntimeError("cannot clean up")  # in place of the cancellation

        @server.tool(task="optional")
        async def stream(ctx: Context) -> str:
            await steal(self.store, self.id)
            try:
                for _ in range(1000):
                    await ctx.emit("a segment")
                    await turns()
            except Exception:
                return await ctx.step(refund)
            finally:
                self.events.append("finally")
            return "streamed"


@pytest.mark.parametrize(
    ("tool", "events"),
    [
        ("buy", ["charge", "finally"]),
        ("buy_stubbornly", ["charge", "finally"]),
        ("buy_in_a_thread", ["charge", "finally"]),
        ("buy_in_a_group", ["charge", "finally"]),
        ("buy_and_fail", ["charge", "finally"]),
        ("stream", ["finally"]),
    ],
)
async def test_a_run_that_lost_its_task_unwinds_and_begins_nothing_more(
    tool: str, events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened()
    shop = Shop(store)
    shop.id = await queued_task(store, tool)
    async with shop.server.running():
        await until(lambda: "finally" in shop.events)
        await until(lambda: shop.server.engine.tasks.running == 0)
        assert await log_entries(store, shop.id) == []
    assert shop.events == events
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_run_that_swallows_its_cancellation_begins_nothing_more() -> None:
    store = await opened()
    server, events = Server("shop", store=store, limits=LONG), list[str]()

    @server.tool(task="optional")
    async def wait(ctx: Context) -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            events.append("cancelled")
        try:
            await ctx.step(events.append, "step")
        finally:
            events.append("ended")
        return "waited"

    id = await queued_task(store, "wait")
    async with server.running():
        await until(lambda: store.calls["read"])
        await steal(store, id)
        await LoopTime.here().advance_until(lambda: "ended" in events, HOUR)
        assert await log_entries(store, id) == []
    assert events == ["cancelled", "ended"]


# A worker that stalls


class Stalling(FaultyStore):
    """A store whose first log takes longer to read than the lease lasts; another worker is quicker."""

    def __init__(self, lease_time: LeaseTime) -> None:
        super().__init__()
        self.stolen = False
        self._lease_time = lease_time

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        entries = await self.inner.read(*args, **kwargs)
        if not self.stolen:
            self.stolen = True
            self._lease_time.advance(2 * HOUR)
            (claim,) = await self.inner.claim("quicker", lease=HOUR, limit=1)
            assert claim.token == 2
        return entries


async def test_a_worker_that_stalls_between_claiming_and_running_does_not_run(
    lease_time: LeaseTime,
) -> None:
    store: Any = Stalling(lease_time)
    await store.open()
    server, runs = Server("tests", store=store, limits=LONG), list[str]()

    @server.tool(task="optional")
    async def count() -> str:
        runs.append("ran")
        return "counted"

    id = await queued_task(store, "count")
    async with server.running():
        await until(lambda: store.calls["renew"] > 0)
        await until(lambda: server.engine.tasks.running == 0)
        assert (runs, await log_entries(store, id)) == ([], [])


async def test_a_step_does_not_begin_after_the_lease_was_lost_in_a_stall(lease_time: LeaseTime) -> None:
    store = await opened()
    server, events = Server("tests", store=store, limits=LONG), list[str]()
    # A task that may run again would be reported: for its process, the time that passed was an outage.
    id = await queued_task(store, "stall", resume=False)

    @server.tool(task="optional")
    async def stall(ctx: Context) -> str:
        events.append("ran")
        lease_time.advance(2 * HOUR)  # as if the function had blocked the event loop, which renews
        (claim,) = await store.claim("quicker", lease=HOUR, limit=1)
        events.append(f"claim {claim.token}")
        await ctx.step(events.append, "step")
        return "done"

    async with server.running():
        await until(lambda: len(events) > 1)
        await until(lambda: server.engine.tasks.running == 0)
        assert await log_entries(store, id) == []
    assert events == ["ran", "claim 2"]


# A process that takes up its own task


class Holding:
    """A server with a tool that runs until the gate opens."""

    def __init__(self, store: Any, limits: Limits = SHORT) -> None:
        self.started = 0
        self.gate = asyncio.Event()
        self.server = Server("tests", store=store, limits=limits)

        @self.server.tool(task="optional")
        async def hold() -> str:
            self.started += 1
            await self.gate.wait()
            return "held"


async def test_a_process_does_not_claim_its_own_task_after_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repetition, "STORE_RETRY_SECONDS", 0.05)
    store = await opened()
    holding = Holding(store)
    id = await queued_task(store, "hold")
    store.instead("renew", *[StoreUnavailable("It is away.")] * 8)
    async with holding.server.running():
        await until(lambda: store.calls["renew"] > 10)
        assert holding.started == 1
        holding.gate.set()
        assert (await end_of(store, id)).state == "done"
        assert [kind for kind, _ in await log_entries(store, id)] == ["ended"]
    assert holding.started == 1


async def test_a_task_that_its_own_process_claims_again_is_given_back_and_then_runs_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "OWN_TASK_DELAY_SECONDS", 0.01)
    store, loop_time = await opened(), LoopTime.here()
    holding = Holding(store, LONG)
    id = await queued_task(store, "hold")
    async with holding.server.running():
        await until(lambda: holding.started == 1)
        await store.release(id, 1)  # the store forgets the claim, and this process claims the task itself
        await until(lambda: holding.started == 2)
        renewals = store.calls["renew"]
        await loop_time.advance_until(
            lambda: store.calls["renew"] > renewals + 4, HOUR / 3
        )  # longer than the lease
        holding.gate.set()
        assert (await end_of(store, id)).state == "done"
        entries = await log_entries(store, id)
    assert holding.started == 2  # the second run was not forgotten with the first
    # The claim between them was released without an entry, and is no lost run.
    assert [data.get("quiet_releases", 0) for _, data in entries] == [1, 1]
    assert entries[0][1]["attempt"] == 1


class Delays(FaultyStore):
    """A store that notes the delays with which tasks are released."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float] = []

    async def release(self, id: str, token: int, *, delay: float = 0.0, requeue: bool = False) -> None:
        self.noted.append(delay)
        await self.inner.release(id, token, delay=0.0 if delay else delay)


async def test_a_task_whose_function_does_not_stop_is_given_back_with_growing_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "CLAIM_INTERVAL_SECONDS", 0.01)
    store = Delays()
    await store.open()
    server = Server("stuck", store=store, limits=Limits(drain_timeout=0.0))  # type: ignore[arg-type]
    started, gate = 0, asyncio.Event()

    @server.tool(task="optional")
    async def stuck() -> str:
        nonlocal started
        started += 1
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                pass
        return "done"

    id = await queued_task(store, "stuck")
    async with server.running():
        await until(lambda: started == 1)
        length = len(await store.read(id))
        await store.inner.release(id, 1)
        await until(lambda: len(store.noted) >= 8)
        assert len(await store.read(id)) == length
        gate.set()
    assert started >= 1
    assert store.noted[:8] == [1, 2, 4, 8, 16, 32, 60, 60]


# Draining


class Slow(FaultyStore):
    """A store whose claims take until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        self.calls["claim"] += 1
        await self.gate.wait()
        return await self.inner.claim(*args, **kwargs)


async def test_a_claim_that_is_under_way_when_the_worker_drains_is_given_back() -> None:
    store: Any = Slow()
    await store.open()
    holding = Holding(store, LONG)
    id = await queued_task(store, "hold", resume=False)
    async with holding.server.running():
        await until(lambda: store.calls["claim"] == 1)
        worker = holding.server.engine.tasks.worker
        assert worker is not None
        worker.drain()
        store.gate.set()
        await worker.stop(within=60)
        assert await log_entries(store, id) == [("recorded", {"released": True, "by": 1})]
        (claim,) = await store.inner.claim("next", lease=60.0, limit=1)
        assert (claim.token, holding.started) == (2, 0)


async def test_leases_are_renewed_while_the_worker_waits_for_its_tasks(lease_time: LeaseTime) -> None:
    store, loop_time = await opened(), LoopTime.here()
    holding = Holding(store, LONG)
    id = await queued_task(store, "hold")
    async with holding.server.running():
        await until(lambda: holding.started == 1)
        worker = holding.server.engine.tasks.worker
        assert worker is not None
        stopping = asyncio.create_task(worker.stop(within=100 * HOUR))
        await turns()
        for _ in range(3):
            loop_time.advance(HOUR / 2)
            await lease_time.let_renew(store, HOUR)
        assert await store.claim("other", lease=HOUR, limit=1) == []
        assert not stopping.done()
        holding.gate.set()
        await stopping
        assert [kind for kind, _ in await log_entries(store, id)] == ["ended"]


async def test_a_task_that_is_released_in_order_is_no_lost_attempt() -> None:
    store = await opened()
    holding = Holding(store)
    id = await queued_task(store, "hold")
    async with holding.server.running():
        await until(lambda: holding.started == 1)
    await store.open()
    holding.gate.set()
    async with holding.server.running():
        assert (await end_of(store, id)).state == "done"
        entries = await log_entries(store, id)
    assert [sorted(data) for _, data in entries] == [["by", "released"], ["by", "result"]]


# An event loop that is blocked


class Competitor:
    """Tries to claim tasks, as a worker in another process does, and moves the clock of leases."""

    def __init__(self, url: str, lease_time: LeaseTime, is_warned: Callable[[], bool]) -> None:
        self.claims: list[Any] = []
        self.is_done = threading.Event()
        self._url, self._lease_time, self._is_warned = url, lease_time, is_warned

    def run(self) -> None:
        """Let leases be renewed three times, and wait for a warning. This is the function of a thread."""
        asyncio.run(self._compete())

    async def _compete(self) -> None:
        store = open_store(self._url)
        await store.open()
        for _ in range(3):
            await self._lease_time.let_renew(store, HOUR)
            self.claims += await store.claim("other", lease=HOUR, limit=1)
        await store.close()
        await until(self._is_warned)
        self.is_done.set()


async def test_leases_are_renewed_while_the_event_loop_is_blocked_and_the_tool_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lease_time: LeaseTime
) -> None:
    caplog.set_level(logging.WARNING, "antiphon")
    url = f"sqlite:///{tmp_path}/tasks.db"
    competitor = Competitor(url, lease_time, lambda: "event loop has been blocked" in caplog.text)
    competing = threading.Thread(target=competitor.run, daemon=True)
    server = Server("tests", store=url, limits=LONG)

    @server.tool(task="optional")
    async def block() -> str:
        competing.start()  # the event loop is blocked from here on
        assert competitor.is_done.wait(60)
        return "blocked"

    store = open_store(url)
    await store.open()
    id = await queued_task(store, "block")
    async with server.running():
        task = await end_of(store, id)
    await store.close()
    assert (task.state, competitor.claims) == ("done", [])
    (warning,) = [message for message in caplog.messages if "event loop has been blocked" in message]
    assert f"by the tool 'block' in task {id}, at {__file__}:" in warning
    assert "in block" in warning


# What a function learns in its `finally` block


class Rooms:
    """A server with a tool that keeps a room for as long as its task goes on."""

    def __init__(self, store: Any) -> None:
        self.events: list[Any] = []
        self.server = server = Server(
            "rooms", store=store, limits=Limits(drain_timeout=0.0, lease_seconds=HOUR)
        )

        @server.tool(task="optional")
        async def meet(ctx: Context) -> str:
            self.events.append("began")
            try:
                await forever()
            finally:
                self.events.append(ctx.suspending)
            return "met"

    async def learns(self) -> None:
        """Let the worker renew its leases until the function has learned what became of its task."""
        await LoopTime.here().advance_until(lambda: len(self.events) == 2, HOUR / 3)


async def test_a_function_whose_worker_stops_learns_that_it_runs_again() -> None:
    store = await opened()
    rooms = Rooms(store)
    id = await queued_task(store, "meet")
    async with rooms.server.running():
        await until(lambda: rooms.events)
    assert rooms.events == ["began", True]
    await store.open()
    assert (await store.get(id)).phase == "ready"


async def test_a_function_that_lost_its_task_to_another_worker_learns_that_it_runs_again() -> None:
    store = await opened()
    rooms = Rooms(store)
    id = await queued_task(store, "meet")
    async with rooms.server.running():
        await until(lambda: rooms.events)
        await steal(store, id)
        await rooms.learns()
    assert rooms.events == ["began", True]


async def test_a_function_whose_task_was_cancelled_elsewhere_learns_that_it_is_over() -> None:
    store = await opened()
    rooms = Rooms(store)
    id = await queued_task(store, "meet")
    async with rooms.server.running():
        await until(lambda: rooms.events)
        record = await store.get(id)
        head = {**record.head, "state": "cancelled"}
        cancelled = [("cancelled", {})]
        await store.append(id, cancelled, expect=record.version, phase="ended", head=head)
        await rooms.learns()
    assert rooms.events == ["began", False]


@pytest.mark.parametrize("is_done", [False, True], ids=["unwinds it", "has unwound it"])
async def test_a_function_whose_cancelled_task_another_worker_unwinds_leaves_the_cleaning_up_to_it(
    is_done: bool,
) -> None:
    """Its worker was cut off from the store for longer than the lease."""
    store = await opened()
    rooms = Rooms(store)
    id = await queued_task(store, "meet")
    async with rooms.server.running():
        await until(lambda: rooms.events)
        record = await store.get(id)
        head, cancelled = {**record.head, "state": "cancelled"}, [("cancelled", {})]
        until_ms = record.created + 3_600_000
        await store.append(id, cancelled, expect=record.version, phase="ended", head=head, unwind_by=until_ms)
        token = await steal(store, id)
        if is_done:
            unwound = [("recorded", {"unwound": True})]
            await store.append(id, unwound, expect=record.version + 1, phase="ended", head=head, token=token)
        await rooms.learns()
    assert rooms.events == ["began", True]
