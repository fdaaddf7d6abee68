"""An operator retries a failed task: waits and steps that failed begin anew, and finished steps stay."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Context, Failure, Principal, Retry, Server, Unanswered
from antiphon.model.task_history import forget_failures
from antiphon.store.contract import Store
from tests.waiting.support import Clock, accept, asked, client_of, inbox

BOB = Principal("bob", scopes=frozenset({"finance"}))


async def retry(server: Server, id: str) -> None:
    """Retry a task as `antiphon tasks retry` does."""
    service = server.engine.tasks.service
    assert service is not None
    await service.retry(id, Principal("ada"))


async def test_a_step_without_an_attempt_left_is_tried_again(store: Store) -> None:
    server, calls = Server("shop", store=store), list[str]()

    async def unstable() -> str:
        calls.append("unstable")
        if calls.count("unstable") < 4:
            raise OSError("away")
        return "done"

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        await ctx.step(calls.append, "once")
        return await ctx.step(unstable, retry=Retry(attempts=3, first=0.01))

    async with client_of(server) as client:
        handle = await client.submit("order")
        with pytest.raises(Failure, match="failed 3 times"):
            await handle.result(timeout=60)
        await retry(server, handle.id)
        assert (await handle.result(timeout=60)).text == "done"
    assert calls.count("once") == 1


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
async def test_a_question_that_nobody_answered_is_asked_again(
    store: Store, clock: Clock, beside: bool
) -> None:
    server = Server("shop", store=store)

    def note(text: str) -> str:
        return text

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        async def ask() -> bool:
            return await ctx.elicit("Go?", bool, to="finance", key="go", within=60)

        async def steps() -> None:
            await ctx.step(note, "beside")
            await ctx.sleep(0.01)
            await ctx.step(note, "again")

        if beside:
            approved, _ = await asyncio.gather(ask(), steps())
        else:
            approved = await ask()
        return str(approved)

    async with client_of(server) as client:
        handle = await client.submit("order")
        await asked(server, BOB)
        clock.forward(minutes=2)
        with pytest.raises(Failure, match="Nobody has answered in time"):
            await handle.result(timeout=60)
        await retry(server, handle.id)
        (item,) = await asked(server, BOB)
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        assert (await handle.result(timeout=60)).text == "True"


async def test_what_the_function_has_handled_is_not_forgotten(store: Store, clock: Clock) -> None:
    server, runs = Server("shop", store=store), 0

    def withdraw() -> str:
        return "withdrawn"

    @server.tool(task="required", poll_interval=0.02)
    async def order(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        try:
            await ctx.elicit("Go?", bool, to="finance", key="go", within=60)
        except Unanswered:
            withdrawn = await ctx.step(withdraw)
            if runs < 3:
                raise Failure("The printer is away.") from None
            return withdrawn
        return "approved"

    async with client_of(server) as client:
        handle = await client.submit("order")
        await asked(server, BOB)
        clock.forward(minutes=2)
        with pytest.raises(Failure, match="printer"):
            await handle.result(timeout=60)
        await retry(server, handle.id)
        assert (await handle.result(timeout=60)).text == "withdrawn"


def test_only_the_failures_at_the_end_are_forgotten() -> None:
    journal = {
        "unanswered:a": True,
        "step:x": 1,
        "print:step:x": "12345678",
        "within:b": [0, 1],
        "tried:y": {"count": 3, "last": []},
        "unanswered:b": True,
        "step:z": 1,
        "print:step:z": "=~12345678",
    }
    forget_failures(journal)
    assert list(journal) == ["unanswered:a", "step:x", "print:step:x", "step:z", "print:step:z"]
