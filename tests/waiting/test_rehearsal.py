"""`antiphon.testing.rehearse` with tools that sleep, wait for events and ask others: no test has to wait."""

from __future__ import annotations

from datetime import timedelta

from antiphon import Context, Server, Unanswered
from antiphon.testing import rehearse

server = Server("shop")


@server.tool(task="required")
async def expense(ctx: Context, amount: float) -> str:
    await ctx.sleep(hours=1)
    try:
        approved = await ctx.elicit(
            "Approve?", bool, to="finance", approvals=2, within=timedelta(days=3), key="ok"
        )
    except Unanswered:
        return "withdrawn"
    paid = await ctx.event("payment", key="7")
    return f"{approved} {paid} {len(ctx.approved_by('ok'))}"


async def test_time_passes_at_once_and_others_answer() -> None:
    rehearsal = await rehearse(
        server, "expense", {"amount": 5}, answers={"ok": True}, events={("payment", "7"): [12]}
    )
    assert rehearsal.result is not None
    assert rehearsal.result.text == "[True, True] 12 2"
    assert rehearsal.slept == timedelta(hours=1)
    assert [(question.key, question.to) for question in rehearsal.questions] == [("ok", ("finance",))] * 2


async def test_a_question_that_nobody_answers_is_given_up() -> None:
    rehearsal = await rehearse(server, "expense", {"amount": 5})
    assert rehearsal.result is not None
    assert rehearsal.result.text == "withdrawn"
    assert rehearsal.slept == timedelta(days=3, hours=1)


async def test_a_question_without_a_deadline_stays_open() -> None:
    @server.tool(task="required")
    async def ask(ctx: Context) -> None:
        await ctx.elicit("Approve?", bool, to="finance", key="ok")

    rehearsal = await rehearse(server, "ask")
    assert rehearsal.result is None
    assert [question.key for question in rehearsal.open] == ["ok"]
