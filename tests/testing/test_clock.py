"""`Clock`: a test moves the time, and sleeps, deadlines, lifetimes and retries end without waiting."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from antiphon import (
    Artifact,
    Client,
    Context,
    Limits,
    Result,
    Retry,
    Server,
    Text,
    Unanswered,
    wall_clock,
)
from antiphon.errors import TaskLost, TimedOut
from antiphon.testing import Clock
from antiphon.testing import clock as clock_module
from tests.support.polling import forever, turns


@pytest.fixture(params=["memory", "sqlite"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Server:
    store = None if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    return Server("shop", store=store, limits=Limits(call_timeout=100))


@pytest.fixture
def clock(server: Server) -> Iterator[Clock]:
    with Clock(server) as clock:
        yield clock


async def test_a_task_wakes_at_each_of_its_times(server: Server, clock: Clock) -> None:
    woken: list[timedelta] = []

    @server.tool(task="required", poll_interval=0.01)
    async def remind(ctx: Context) -> str:
        began = ctx.now()
        await ctx.sleep(hours=1)
        woken.append(ctx.now() - began)
        await ctx.sleep(hours=22)
        woken.append(ctx.now() - began)
        return "Monday"

    async with Client(server) as client:
        handle = await client.submit("remind")
        await clock.advance(minutes=59)
        assert woken == []
        await clock.advance(hours=23)
        assert (await handle.result()).text == "Monday"
    assert [round(each / timedelta(minutes=1)) for each in dict.fromkeys(woken)] == [60, 23 * 60]


async def test_a_question_that_nobody_answers_in_time(server: Server, clock: Clock) -> None:
    @server.tool(task="required", poll_interval=0.01)
    async def approve(ctx: Context) -> str:
        try:
            await ctx.elicit("May I?", bool, to="managers", within=timedelta(days=3))
        except Unanswered:
            return "nobody"
        return "somebody"

    async with Client(server) as client:
        handle = await client.submit("approve")
        await clock.advance(timedelta(days=2))
        assert (await handle.status()).status == "working"
        await clock.advance(timedelta(days=1))
        assert (await handle.result()).text == "nobody"


async def test_a_step_is_retried_after_its_delays(server: Server, clock: Clock) -> None:
    tries = 0

    async def ship() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionError("down")
        return "shipped"

    @server.tool(task="required", poll_interval=0.01)
    async def order(ctx: Context) -> str:
        return await ctx.step(ship, retry=Retry(attempts=5, first=600))

    async with Client(server) as client:
        handle = await client.submit("order")
        await clock.settle()
        assert tries == 1
        await clock.advance(hours=1)
        assert (await handle.result()).text == "shipped"
    assert tries == 3


async def test_a_task_is_deleted_when_its_lifetime_is_over(server: Server, clock: Clock) -> None:
    @server.tool(task="required", task_ttl=3600, poll_interval=0.01)
    async def count() -> int:
        return 3

    async with Client(server) as client:
        handle = await client.submit("count")
        assert (await handle.result()).data == 3
        await clock.advance(hours=2)
        with pytest.raises(TaskLost):
            await handle.status()


async def test_a_call_that_takes_too_long(server: Server, clock: Clock) -> None:
    @server.tool
    async def slow() -> None:
        await forever()

    async with Client(server, timeout=50) as client:
        calling = asyncio.create_task(client.call("slow"))
        await clock.advance(seconds=40)
        assert not calling.done()
        await clock.advance(seconds=20)
        with pytest.raises(TimedOut):
            await calling


async def test_short_waits_follow_each_other(server: Server, clock: Clock) -> None:
    @server.tool(timeout=290)
    async def nap(ctx: Context) -> str:
        for _ in range(3):
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=40)
        return "rested"

    async with Client(server, timeout=300) as client:
        calling = asyncio.create_task(client.call("nap"))
        await clock.advance(seconds=100)
        assert not calling.done()
        await clock.advance(seconds=24)
        assert calling.done()
        assert (await calling).text == "rested"


class Starved:
    """The time of a process that gets no processor for an hour after each look at its clock.

    `pauses` counts how often the event loop has let threads work; `worked` is the time that the process has
    had.
    """

    def __init__(self) -> None:
        self.pauses = 0
        self.worked = 0.0
        self.is_over = False
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 3600
        return self._now

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        threading.Event().wait(0)  # lets go of the interpreter

    def process_time(self) -> float:
        return self.worked

    def compute(self, pauses: int) -> str:
        """Work without the interpreter until the event loop has let threads work so often."""
        while self.pauses < pauses and not self.is_over:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 1000)
        return "done"


@pytest.fixture
def starved(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starved]:
    starved = Starved()
    monkeypatch.setattr(clock_module, "time", starved)
    yield starved
    starved.is_over = True


async def test_functions_in_threads_are_done_before_the_time_goes_on(
    server: Server, clock: Clock, starved: Starved
) -> None:
    server.add_tool(starved.compute, name="compute")
    async with Client(server) as client:
        calling = asyncio.create_task(client.call("compute", pauses=20))
        await clock.settle()
        assert calling.done()
        assert (await calling).text == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which threads could go on")
async def test_a_function_that_could_go_on_is_not_taken_for_blocked(
    server: Server, clock: Clock, starved: Starved
) -> None:
    server.add_tool(starved.compute, name="compute")
    async with Client(server) as client:
        calling = asyncio.create_task(client.call("compute", pauses=3000))
        await clock.settle()
        assert calling.done()
        assert (await calling).text == "done"


async def test_a_function_that_blocks_its_thread_does_not_hold_the_clock(
    server: Server, clock: Clock
) -> None:
    unblocked = threading.Event()
    server.add_tool(unblocked.wait, name="block")
    async with Client(server) as client:
        calling = asyncio.create_task(client.call("block", timeout=30))
        await clock.advance(hours=1)
        unblocked.set()
        with pytest.raises(TimedOut):
            await calling


async def test_functions_that_poll_or_wait_for_a_thread_do_not_hold_the_clock() -> None:
    server = Server("shop", limits=Limits(max_threads=1))
    held, polled = threading.Lock(), threading.Event()
    held.acquire()

    @server.tool
    def poll() -> None:
        while not held.acquire(timeout=0.001):
            polled.set()

    async with Client(server) as client:
        with Clock(server) as clock:
            calls = [asyncio.create_task(client.call("poll", timeout=30)) for _ in range(2)]
            await clock.advance(hours=1)
            assert polled.is_set()
            assert [type(error) for error in await asyncio.gather(*calls, return_exceptions=True)] == [
                TimedOut
            ] * 2
        held.release()


async def test_a_server_that_is_never_done_is_named_after_the_time_that_it_worked(
    server: Server, clock: Clock, starved: Starved
) -> None:
    rounds = 0

    @server.tool
    async def poll() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            if rounds == 5000:
                starved.worked += 1000
            await turns()

    async with Client(server) as client:
        calling = asyncio.create_task(client.call("poll"))
        with pytest.raises(AssertionError, match="busy after 30 s of work: a function may poll"):
            await clock.settle()
        assert rounds >= 5000
        calling.cancel()
        await asyncio.wait([calling])


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_task_has_ended_when_the_time_was_moved(server: Server, clock: Clock, protocol: str) -> None:
    @server.tool(task="required", poll_interval=0.01)
    async def report(ctx: Context) -> Result:
        await ctx.sleep(days=1)
        text = await asyncio.to_thread(str, 7)
        return Result([Text(text)], artifact=Artifact({"rows": 1000 * ["row"]}))

    async with Client(server, protocol=protocol) as client:
        handle = await client.submit("report")
        await clock.advance(days=1)
        assert (await handle.status()).status == "completed"
        assert (await handle.result()).text.startswith("7")


async def test_the_time_of_day_is_the_real_one_afterwards(server: Server) -> None:
    with Clock(server) as clock:
        before = clock.now()
        await clock.advance(days=30)
        assert timedelta(days=30) <= clock.now() - before < timedelta(days=31)
        with pytest.raises(RuntimeError, match="one at a time"):
            Clock().__enter__()
    assert wall_clock.ahead == 0
    with pytest.raises(RuntimeError, match="not in use"):
        await clock.advance(1)


async def test_a_clock_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="whose tasks are in PostgreSQL"):
        Clock(Server("shop", store="postgresql://localhost/tasks")).__enter__()
    with Clock() as clock:
        for seconds in (-3600, float("inf"), float("nan")):
            with pytest.raises(ValueError, match=f"cannot move by {seconds:g} s: pass a finite duration"):
                await clock.advance(seconds)


def test_the_event_loop_has_to_be_the_one_of_asyncio() -> None:
    async def settle() -> None:
        with Clock() as clock, pytest.raises(RuntimeError, match="an event loop of uvloop"):
            await clock.settle()

    uvloop.run(settle())
