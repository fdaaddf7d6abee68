"""`ctx.answered_by` and `ctx.approved_by` name those whose answers were accepted, and nobody else."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, field_validator

from antiphon import Context, InputRequired, Principal, Server, Unanswered
from antiphon.client.tasks.handle import TaskHandle
from antiphon.errors import InvalidParams
from antiphon.model.question import ElicitResult
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from tests.support.polling import turns, until
from tests.waiting.support import Clock, accept, asked, client_of, inbox

BOB = Principal("bob", scopes=frozenset({"finance"}))
EVE = Principal("eve", scopes=frozenset({"finance"}))


class Account(BaseModel):
    iban: str

    @field_validator("iban")
    @classmethod
    def is_known(cls, value: str) -> str:
        if not value.startswith("DE"):
            raise ValueError("no IBAN")
        return value


async def test_somebody_whose_answer_was_refused_has_not_answered(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def pay(ctx: Context) -> list[str]:
        await ctx.elicit("Account?", Account, to="finance", key="account")
        return [ctx.answered_by("account").id, *(each.id for each in ctx.approved_by("account"))]

    async with client_of(server) as client:
        handle = await client.submit("pay")
        (item,) = await asked(server, BOB)
        await inbox(server).answer(BOB, item.task_id, item.key, accept(iban="x"))

        async def is_refused() -> bool:
            (found,) = (await inbox(server).list(EVE)).items or (item,)
            return "no IBAN" in found.question.message

        await until(is_refused)
        await inbox(server).answer(EVE, item.task_id, item.key, accept(iban="DE1"))
        assert (await handle.result(timeout=60)).data == ["eve", "eve"]


async def test_the_caller_cannot_answer_for_others_with_the_call(store: Store, clock: Clock) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def pay(ctx: Context) -> str:
        before = ctx.approved_by("go")
        try:
            await ctx.elicit("Go?", bool, to="finance", key="go", within=3600)
        except Unanswered:
            with pytest.raises(LookupError):
                ctx.answered_by("go")
            return f"withdrawn {before} {ctx.approved_by('go')}"
        return "paid"

    async with client_of(server) as client:
        forged = {"go": ElicitResult("accept", {"value": True})}
        handle = await client.call_once("pay", resume=InputRequired({}), answers=forged)
        assert isinstance(handle, TaskHandle)
        await asked(server, BOB)
        clock.forward(hours=1, minutes=1)
        assert (await handle.result(timeout=60)).text == "withdrawn [] []"


async def test_the_caller_has_answered_its_own_question(store: Store) -> None:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.02)
    async def pay(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool, key="sure")
        await turns()
        return ctx.answered_by("sure").id

    async with client_of(server) as client:
        handle = await client.submit("pay")

        async def is_asked() -> bool:
            return bool((await handle.status()).questions)

        await until(is_asked)
        await handle.answer({"sure": accept(value=True)})
        assert (await handle.result(timeout=60)).text == "ada"


async def test_the_answers_of_one_person_that_do_not_fit_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("antiphon.runtime.tasks.inbox.MAX_UNFIT_ANSWERS", 3)
    server = Server("shop", store=MemoryStore())

    @server.tool(task="required", poll_interval=0.02)
    async def pay(ctx: Context) -> str:
        await ctx.elicit("Account?", Account, to="finance", key="account")
        return ctx.answered_by("account").id

    async with client_of(server) as client:
        handle = await client.submit("pay")
        for number in range(3):
            (item,) = await asked(server, BOB)
            await inbox(server).answer(BOB, item.task_id, item.key, accept(iban=f"x{number}"))
        (item,) = await asked(server, BOB)
        with pytest.raises(InvalidParams, match="Too many of your answers"):
            await inbox(server).answer(BOB, item.task_id, item.key, accept(iban="DE1"))
        await inbox(server).answer(EVE, item.task_id, item.key, accept(iban="DE1"))
        assert (await handle.result(timeout=60)).text == "eve"


async def test_a_principal_with_too_many_names_keeps_its_own(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop", store=MemoryStore(), audiences=lambda _: {"zoe", *map(str, range(2000))})
    async with client_of(server):
        names = await inbox(server).names(Principal("zoe"))
    assert len(names) == 1000
    assert "zoe" in names
    assert "answers for 2001 names, and only 1000 count" in caplog.text
