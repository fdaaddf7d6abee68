"""Deadlines: an answer before the deadline counts, and one after it is refused, by the clock of the store."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Context, Limits, Principal, Server, Unanswered
from antiphon.errors import AntiphonError, TaskNotFound
from antiphon.store.contract import Store
from tests.support.polling import until
from tests.waiting.support import Clock, accept, asked, client_of, inbox, look_for_due, status_of

BOB = Principal("bob", scopes=frozenset({"finance"}))
EVE = Principal("eve", scopes=frozenset({"finance"}))


class Gate:
    """Holds the second run of a function, after it has begun and before it asks."""

    def __init__(self) -> None:
        self.runs, self.reached, self.opened = 0, asyncio.Event(), asyncio.Event()

    async def pass_through(self) -> None:
        self.runs += 1
        if self.runs == 2:
            self.reached.set()
            await self.opened.wait()


async def test_an_answer_that_comes_in_time_counts_although_the_run_is_late(
    store: Store, clock: Clock
) -> None:
    server, gate = Server("shop", store=store), Gate()

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        await gate.pass_through()
        try:
            await ctx.elicit("Go?", bool, to="finance", key="go", within=3600, remind=600)
        except Unanswered:
            return "withdrawn"
        return f"approved by {ctx.answered_by('go').id}"

    async with client_of(server) as client:
        handle = await client.submit("order")
        (item,) = await asked(server, BOB)
        clock.forward(minutes=10)
        async with asyncio.timeout(60):
            await gate.reached.wait()  # a reminder is due; the run has read the log
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        clock.forward(seconds=20)
        gate.opened.set()
        assert (await handle.result(timeout=60)).text == "approved by bob"


async def test_an_answer_after_the_deadline_is_refused(store: Store, clock: Clock) -> None:
    server, gate = Server("shop", store=store), Gate()

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        await gate.pass_through()
        try:
            await ctx.elicit("Go?", bool, to="finance", key="go", within=3600)
        except Unanswered:
            return f"withdrawn, approved by {ctx.approved_by('go')}"
        return "approved"

    async with client_of(server) as client:
        handle = await client.submit("order")
        (item,) = await asked(server, BOB)
        clock.forward(hours=1, minutes=1)
        with pytest.raises(TaskNotFound):
            await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        async with asyncio.timeout(60):
            await gate.reached.wait()
        with pytest.raises(TaskNotFound):
            await inbox(server).answer(EVE, item.task_id, item.key, accept(value=True))
        gate.opened.set()
        assert (await handle.result(timeout=60)).text == "withdrawn, approved by []"


async def test_of_the_callers_answers_those_in_time_count(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        async def hasty() -> str:
            try:
                return str(await ctx.elicit("Now?", bool, key="now", within=3600))
            except Unanswered:
                return "too late"

        return " ".join(await asyncio.gather(hasty(), ctx.elicit("Where?", str, key="where")))

    async with client_of(server) as client:
        handle = await client.submit("order")

        async def both_asked() -> bool:
            return len((await handle.status()).questions) == 2

        await until(both_asked)
        clock.forward(hours=1, minutes=1)
        await handle.answer({"now": accept(value=True), "where": accept(value="here")})
        assert (await handle.result(timeout=60)).text == "too late here"


async def test_every_answer_that_was_accepted_at_the_deadline_counts(store: Store, clock: Clock) -> None:
    # In PostgreSQL, a lease ends when the clock jumps.
    server = Server("shop", store=store, limits=Limits(lease_seconds=86_400))

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        try:
            await ctx.elicit("Go?", bool, to="finance", key="go", within=3600)
        except Unanswered:
            return "withdrawn"
        return "approved"

    async def answer(id: str) -> str:
        try:
            await inbox(server).answer(BOB, id, "go", accept(value=True))
        except AntiphonError:
            return "withdrawn"
        return "approved"

    async with client_of(server) as client:
        handles = [await client.submit("order") for _ in range(10)]
        for handle in handles:
            await status_of(handle, "Waiting")
        early, *late, last = handles
        told = [await answer(early.id)]
        (item, *_) = (await inbox(server).list(BOB)).items
        assert item.deadline is not None
        clock.forward(seconds=item.deadline / 1000 - clock() - 0.005)  # it passes while they answer
        *answers, _ = await asyncio.gather(*(answer(handle.id) for handle in late), look_for_due(server))
        clock.forward(minutes=1)
        told += [*answers, await answer(last.id)]
        found = [(await handle.result(timeout=60)).text for handle in handles]
    assert found == told  # whichever of the two it was
    assert (told[0], told[-1]) == ("approved", "withdrawn")


@pytest.mark.parametrize("skew", [-3600, 3600], ids=["behind", "ahead"])
async def test_time_passes_by_the_clock_of_the_store(
    store: Store, clock: Clock, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, times = Server("shop", store=store), list[int]()
    for module in ("antiphon.runtime.tasks.claimed_task", "antiphon.runtime.tasks.service"):
        monkeypatch.setattr(f"{module}.now_ms", lambda: int((clock() + skew) * 1000))

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        times.append(int(clock() * 1000))
        await ctx.sleep(minutes=10)
        return "slept"

    async with client_of(server) as client:
        handle = await client.submit("order")
        await status_of(handle, "Sleeping")
        record = await store.get(handle.id)
        assert record is not None
        assert record.wakes is not None
        assert abs(record.wakes - times[0] - 600_000) < 60_000
        clock.forward(minutes=11)
        assert (await handle.result(timeout=60)).text == "slept"
