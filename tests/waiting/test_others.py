"""`ctx.elicit(to=…)`: somebody else than the caller answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from antiphon import Context, Declined, Principal, Server, Unanswered
from antiphon.errors import InvalidParams, TaskNotFound
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.support.polling import until
from tests.waiting.support import Clock, accept, asked, client_of, inbox, status_of

BOB = Principal("bob", scopes=frozenset({"finance"}))
EVE = Principal("eve", claims={"roles": ["finance"]})
MAX = Principal("max")


def expenses(store: Store, **options: Any) -> Server:
    """A server with a tool that asks finance."""
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context, amount: float) -> str:
        try:
            approved = await ctx.elicit(f"Approve {amount} €?", bool, to="finance", key="approve", **options)
        except Declined:
            return f"declined by {ctx.answered_by('approve').id}"
        except Unanswered:
            return "withdrawn"
        return f"{approved} by {', '.join(each.id for each in ctx.approved_by('approve'))}"

    return server


async def test_a_member_of_the_group_answers(store: Store) -> None:
    server = expenses(store)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=1240.0)
        assert await status_of(handle, "Waiting") == "Waiting for an answer from finance."
        status = await handle.status()
        assert (status.status, status.questions) == ("working", {})
        (item,) = await asked(server, BOB)
        assert (item.task_id, item.tool, item.owner, item.to) == (handle.id, "expense", "ada", ("finance",))
        assert item.question.message == "Approve 1240.0 €?"
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        assert (await handle.result(timeout=60)).text == "True by bob"
        assert (await inbox(server).list(BOB)).items == ()


async def test_a_principal_that_is_called_like_the_group_is_not_asked(store: Store) -> None:
    server = expenses(store)
    async with client_of(server, "finance") as client:
        handle = await client.submit("expense", amount=5.0)
        await asked(server, BOB)
        for name in ("finance", "max"):
            assert (await inbox(server).list(Principal(name))).items == ()
            with pytest.raises(TaskNotFound):
                await inbox(server).answer(Principal(name), handle.id, "approve", accept(value=True))


def sign(store: Store, **options: Any) -> Server:
    """A server with a tool that asks a person, who is called like a group of others."""
    server = Server("shop", store=store, **options)

    @server.tool(task="required", poll_interval=0.02)
    async def sign(ctx: Context, name: str) -> str:
        await ctx.elicit("Sign?", bool, to=["managers", Principal(name)], key="sign")
        return f"signed by {ctx.answered_by('sign').id}"

    return server


async def test_a_person_is_asked_by_id(store: Store) -> None:
    server = sign(store)
    member = Principal("eve", scopes=frozenset({"bob"}))
    async with client_of(server) as client:
        handle = await client.submit("sign", name="bob")
        assert await status_of(handle, "Waiting") == "Waiting for an answer from managers, bob."
        (item,) = await asked(server, Principal("bob"))
        assert (item.to, item.people) == (("managers",), ("bob",))
        assert (await inbox(server).list(member)).items == ()
        with pytest.raises(TaskNotFound):
            await inbox(server).answer(member, handle.id, "sign", accept(value=True))
        await inbox(server).answer(Principal("bob"), handle.id, "sign", accept(value=True))
        assert (await handle.result(timeout=60)).text == "signed by bob"


async def test_a_caller_that_is_asked_as_a_person_answers(store: Store) -> None:
    server = sign(store, audiences=lambda principal: {f"user:{principal.id}"})
    async with client_of(server) as client:
        handle = await client.submit("sign", name="ada")
        (item,) = await asked(server, Principal("ada"))
        await inbox(server).answer(Principal("ada"), handle.id, item.key, accept(value=True))
        assert (await handle.result(timeout=60)).text == "signed by ada"


async def test_a_listener_hears_of_questions_to_the_person() -> None:
    server = sign(MemoryStore())
    async with (
        client_of(server) as ada,
        client_of(server, "bob") as bob,
        client_of(server, "max") as max,
        bob.listen_inbox() as changes,
        max.listen_inbox() as others,
        asyncio.timeout(60),
    ):
        for name, heard in (("bob", changes), ("max", others)):  # Max hears first of what concerns him
            await ada.submit("sign", name=name)
            change = await anext(heard)
            assert (change.kind, change.item.people) == ("asked", (name,))


@pytest.mark.parametrize("principal", [MAX, Principal("ada", scopes=frozenset({"finance"})), Principal("")])
async def test_nobody_else_sees_or_answers_it(store: Store, principal: Principal) -> None:
    server = expenses(store)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5.0)
        (item,) = await asked(server, BOB)
        assert (await inbox(server).list(principal)).items == ()
        with pytest.raises(TaskNotFound) as refused:
            await inbox(server).answer(principal, item.task_id, item.key, accept(value=True))
        with pytest.raises(TaskNotFound) as missing:
            await inbox(server).answer(principal, "expense_none", "approve", accept(value=True))
        assert refused.value.message == missing.value.message
        await handle.cancel()


async def test_one_who_declines_decides(store: Store) -> None:
    server = expenses(store)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5.0)
        (item,) = await asked(server, EVE)
        await inbox(server).answer(EVE, item.task_id, item.key, {"action": "decline"})
        assert (await handle.result(timeout=60)).text == "declined by eve"


async def test_two_different_people_approve(store: Store) -> None:
    server = expenses(store, approvals=2)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5.0)
        (item,) = await asked(server, BOB)
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        message = await status_of(handle, "1 given")
        assert message == "Waiting for 2 answers from finance, 1 given."
        assert (await inbox(server).list(BOB)).items == ()
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))  # repeated: counts once
        with pytest.raises(TaskNotFound):
            await inbox(server).answer(BOB, item.task_id, item.key, accept(value=False))
        (item,) = await asked(server, EVE)
        assert (item.approvals, item.answered) == (2, 1)
        await inbox(server).answer(EVE, item.task_id, item.key, accept(value=True))
        assert (await handle.result(timeout=60)).text == "[True, True] by bob, eve"


async def test_an_answer_that_does_not_fit_is_refused(store: Store) -> None:
    server = expenses(store)
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5.0)
        (item,) = await asked(server, BOB)
        for response in (accept(value="perhaps"), accept(), "yes", {"action": "maybe"}):
            with pytest.raises(InvalidParams):
                await inbox(server).answer(BOB, item.task_id, item.key, response)
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=False))
        assert (await handle.result(timeout=60)).text == "False by bob"


async def test_a_question_is_given_up_after_its_time(store: Store, clock: Clock) -> None:
    server = expenses(store, within=timedelta(days=3))
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5.0)
        (item,) = await asked(server, BOB)
        assert item.deadline == item.asked + 3 * 86_400_000
        clock.forward(days=3)
        assert (await handle.result(timeout=60)).text == "withdrawn"
        with pytest.raises(TaskNotFound):
            await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))


async def test_those_who_can_answer_are_reminded(store: Store, clock: Clock) -> None:
    server = expenses(store, within=timedelta(days=3), remind=timedelta(days=1))
    async with client_of(server) as client:
        handle = await client.submit("expense", amount=5.0)
        assert [item.reminded for item in await asked(server, BOB)] == [0]
        for day in (1, 2):
            clock.forward(days=1)

            async def reminded(times: int = day) -> bool:
                return [item.reminded for item in (await inbox(server).list(BOB)).items] == [times]

            await until(reminded)
        (item,) = await asked(server, BOB)
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        assert (await handle.result(timeout=60)).text == "True by bob"


async def test_a_question_to_the_caller_has_a_deadline_too(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def confirm(ctx: Context) -> str:
        try:
            return str(await ctx.elicit("Sure?", bool, within=timedelta(hours=1)))
        except Unanswered as error:
            return error.message

    async with client_of(server) as client:
        late, early = await client.submit("confirm"), await client.submit("confirm")

        async def both_ask() -> bool:
            return [(await each.status()).status for each in (late, early)] == ["input_required"] * 2

        await until(both_ask)
        (key,) = (await early.status()).questions
        await early.answer({key: accept(value=True)})
        assert (await early.result(timeout=60)).text == "True"
        clock.forward(hours=1)
        assert (await late.result(timeout=60)).text == "Nobody has answered in time: Sure?"


@pytest.mark.parametrize("others", [[], [EVE]], ids=["one", "two"])
async def test_an_answer_counts_that_comes_while_the_task_runs(
    store: Store, clock: Clock, others: list[Principal]
) -> None:
    server, woken, goes_on = Server("shop", store=store), asyncio.Event(), asyncio.Event()

    async def warn() -> str:
        woken.set()
        await goes_on.wait()
        return "warned"

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context) -> str:
        async def nag() -> str:
            await ctx.sleep(days=1)
            return await ctx.step(warn)

        async def approve() -> list[bool]:
            needed = len(others) + 1
            return await ctx.elicit("Approve?", bool, to="finance", key="approve", approvals=needed)

        warned, _ = await asyncio.gather(nag(), approve())
        return f"{warned} {', '.join(each.id for each in ctx.approved_by('approve'))}"

    async with client_of(server) as client:
        handle = await client.submit("expense")
        (item,) = await asked(server, BOB)
        clock.forward(days=1)
        async with asyncio.timeout(60):
            await woken.wait()
        await inbox(server).answer(BOB, item.task_id, item.key, accept(value=True))
        goes_on.set()
        for other in others:
            await status_of(handle, "1 given")
            (item,) = await asked(server, other)
            assert (await inbox(server).list(BOB)).items == ()
            await inbox(server).answer(other, item.task_id, item.key, accept(value=True))
        people = ", ".join(each.id for each in [BOB, *others])
        assert (await handle.result(timeout=60)).text == f"warned {people}"


@pytest.mark.parametrize("given", ["decline", "nothing"])
async def test_the_caller_never_sees_the_question(store: Store, clock: Clock, given: str) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context) -> str:
        return str(await ctx.elicit("a secret", bool, to="finance", within=timedelta(days=1), key="approve"))

    seen: list[Any] = []
    async with client_of(server, on_log=seen.append, on_progress=seen.append) as client:
        handle = await client.submit("expense")
        (item,) = await asked(server, BOB)
        seen.append(await handle.status())
        if given == "decline":
            await inbox(server).answer(BOB, item.task_id, item.key, {"action": "decline"})
        else:
            clock.forward(days=1)
        result = await handle.result(timeout=60, check=False)
        seen += [result, await handle.status()]
    end = {"decline": "This was declined", "nothing": "Nobody has answered in time"}[given]
    assert result.text == f"{end}: the question to finance."
    assert "secret" not in repr(seen)


async def test_an_address_cannot_be_sent_to_others(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def sign(ctx: Context) -> None:
        await ctx.elicit("Sign", url="https://example.org", to="finance")  # type: ignore[call-overload]

    async with client_of(server) as client:
        result = await (await client.submit("sign")).result(timeout=60, check=False)
    assert result.is_error
