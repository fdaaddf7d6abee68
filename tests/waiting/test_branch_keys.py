"""Branches keep their answers, times, events and attempts apart, although each run has another order."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from antiphon import Client, Context, Principal, RetriesExhausted, Retry, Server
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.support.polling import turns, until
from tests.waiting.support import Clock, accept, asked, client_of, inbox, is_parked, status_of

BOB = Principal("bob", scopes=frozenset({"finance"}))
BOSS = Principal("carl", scopes=frozenset({"boss"}))


async def slow() -> int:
    """Yield: in the first run, the branch without this step is ahead of the one with it."""
    await turns(20)
    return 1


@pytest.mark.parametrize("key", [None, "approve"])
async def test_an_answer_counts_for_the_branch_that_asked(store: Store, key: str | None) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[bool]:
        async def ask_boss() -> bool:
            await ctx.step(slow)
            return await ctx.elicit("Approve?", bool, to="boss", key=key)

        async def ask_finance() -> bool:
            return await ctx.elicit("Approve?", bool, to="finance", key=key)

        return list(await asyncio.gather(ask_boss(), ask_finance()))

    async with client_of(server) as client:
        handle = await client.submit("order")
        (item,) = await asked(server, BOSS)
        (item,) = await asked(server, BOB)
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=False))
        await status_of(handle, "Waiting for an answer from boss.")
        assert (await inbox(server).list(BOB)).items == ()
        (item,) = await asked(server, BOSS)
        await inbox(server).answer(BOSS, item.task_id, item.key, accept(value=True))
        assert (await handle.result(timeout=60)).data == [True, False]


async def test_the_same_question_of_two_branches_to_the_caller(store: Store) -> None:
    server, answers = Server("shop", store=store), iter([1, 2])

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[int]:
        async def late() -> int:
            await ctx.step(slow)
            first = await ctx.elicit("How many?", int)
            return first * 10 + await ctx.elicit("And then?", int)

        async def early() -> int:
            return await ctx.elicit("How many?", int)

        return list(await asyncio.gather(late(), early()))

    async with client_of(server) as client:
        handle = await client.submit("order")

        async def both_asked() -> bool:
            return len((await handle.status()).questions) == 2

        await until(both_asked)
        asked_first, asked_second = (await handle.status()).questions  # the early branch asked first
        await handle.answer(
            {asked_first: accept(value=next(answers)), asked_second: accept(value=next(answers))}
        )

        async def asks_again() -> bool:
            return any("And_then" in key or "and_then" in key for key in (await handle.status()).questions)

        await until(asks_again)
        (key,) = (await handle.status()).questions
        await handle.answer({key: accept(value=5)})
        assert (await handle.result(timeout=60)).data == [25, 1]


async def test_each_branch_sleeps_for_its_own_time(store: Store, clock: Clock) -> None:
    server, woken = Server("shop", store=store), list[str]()

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[str]:
        async def long() -> None:
            await ctx.step(slow)
            await ctx.sleep(hours=2)
            await ctx.step(woken.append, "long")

        async def short() -> None:
            await ctx.sleep(hours=1)
            await ctx.step(woken.append, "short")

        await asyncio.gather(long(), short())
        return woken

    async with client_of(server) as client:
        handle = await client.submit("order")
        message = await status_of(handle, "Sleeping")

        async def has_changed() -> bool:
            return (await handle.status()).message != message

        clock.forward(hours=1)
        await until(has_changed)
        assert woken == ["short"]
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).data == ["short", "long"]


async def test_each_branch_has_its_own_attempts(store: Store, clock: Clock) -> None:
    server, calls = Server("shop", store=store), list[str]()

    async def unstable(who: str) -> str:
        calls.append(who)
        if who == "hopeless" or calls.count(who) < 3:
            raise OSError("away")
        return who

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[str]:
        async def late() -> str:
            await ctx.step(slow)
            return await ctx.step(unstable, "late", retry=Retry(attempts=3, first=60, factor=1))

        async def early() -> str:
            try:
                return await ctx.step(unstable, "hopeless", retry=Retry(attempts=2, first=60, factor=1))
            except RetriesExhausted as error:
                return f"{error.attempts} attempts"

        return list(await asyncio.gather(late(), early()))

    async with client_of(server) as client:
        handle = await client.submit("order")
        for attempts in (1, 2):

            async def has_tried(count: int = attempts) -> bool:
                return calls.count("late") == count and await is_parked(store, handle)

            await until(has_tried)
            await status_of(handle, "Sleeping")
            clock.forward(minutes=1)
        assert (await handle.result(timeout=60)).data == ["late", "2 attempts"]
    assert (calls.count("late"), calls.count("hopeless")) == (3, 2)


async def test_two_branches_receive_each_event_once(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[Any]:
        async def late() -> Any:
            await ctx.step(slow)
            return await ctx.event("paid", key="1")

        found = await asyncio.gather(late(), ctx.event("paid", key="1"))
        await ctx.sleep(hours=1)
        return [*found]

    async with client_of(server) as client:
        handle = await client.submit("order")
        await status_of(handle, "'paid'")
        await server.send_event("paid", "1", "first")
        await server.send_event("paid", "1", "second")
        await status_of(handle, "Sleeping")
        clock.forward(hours=1)
        assert (await handle.result(timeout=60)).data in (["first", "second"], ["second", "first"])


async def test_workers_of_a_queue_find_their_waits_wherever_they_run() -> None:
    store, count = MemoryStore(), 6
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def orders(ctx: Context) -> list[Any]:
        numbers, found = iter(range(count)), dict[int, Any]()

        async def work() -> None:
            for number in numbers:
                if number % 2:
                    await ctx.step(slow)
                found[number] = await ctx.event("paid", key=str(number))

        await asyncio.gather(*(work() for _ in range(3)))
        return [found[number] for number in range(count)]

    async with client_of(server) as client:
        handle = await client.submit("orders")
        for number in range(count):
            await until(lambda: is_parked(store, handle))  # so that the task runs again for each event
            await server.send_event("paid", str(number), number)
        assert (await handle.result(timeout=60)).data == list(range(count))


async def test_names_and_keys_of_events_are_not_confused() -> None:
    server = Server("shop", store=MemoryStore())

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> list[Any]:
        first = await ctx.event("a", key="b:c")
        second = await ctx.event("a:b", key="c")
        third = await ctx.event("a", key="b")
        return [first, second, third, await ctx.event("a", key="b#2"), await ctx.event("a", key="b")]

    async with client_of(server) as client:
        await server.send_event("a", "b:c", 1)
        await server.send_event("a:b", "c", 2)
        await server.send_event("a", "b", 3)
        await server.send_event("a", "b#2", 4)
        await server.send_event("a", "b", 5)
        assert (await (await client.submit("order")).result(timeout=60)).data == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("to", "counts"), [("boss", False), (["finance", "boss"], True)])
async def test_an_answer_of_others_than_the_new_version_asks_does_not_count(
    caplog: pytest.LogCaptureFixture, to: Any, counts: bool
) -> None:
    store = MemoryStore()
    id = ""
    caplog.set_level(logging.INFO)
    for asked_now in ("finance", to):
        server = Server("shop", store=store)

        @server.tool(task="required", poll_interval=0.02)
        async def order(ctx: Context, to: Any = asked_now) -> str:
            approved = await ctx.elicit("Approve?", bool, to=to, key="approve")
            await ctx.event("paid", key="1")
            return str(approved)

        async with Client(server, principal=Principal("ada")) as client:
            if not id:
                id = (await client.submit("order")).id
                (item,) = await asked(server, BOB)
                await inbox(server).answer(BOB, id, item.key, accept(value=True))
                await status_of(client.task(id), "'paid'")
                continue
            await server.send_event("paid", "1")
            if counts:
                assert (await client.task(id).result(timeout=60)).text == "True"
            else:
                assert "waits for a server of the version" in await status_of(client.task(id), "version")
                await client.task(id).cancel()
