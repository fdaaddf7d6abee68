"""An expense over 1,000 € needs two managers, and none of them is the one who submitted it.

`antiphon run examples/approvals.py --store sqlite:///tasks.db` serves it, and may be stopped at any time. Ada
submits an expense with `antiphon call URL expense amount=1240 purpose=laptop --token ada-token`. Bob and Eve
answer with `antiphon inbox URL --token bob-token`.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from antiphon import BearerTokens, Context, Declined, Principal, Server, Unanswered

MANAGER = frozenset({"manager"})
PEOPLE = {
    "ada-token": Principal("ada"),
    "bob-token": Principal("bob", scopes=MANAGER),
    "eve-token": Principal("eve", scopes=MANAGER),
}

server = Server("expenses", authenticate=BearerTokens(PEOPLE))


class Approval(BaseModel):
    """What a manager adds to an approval."""

    comment: str = ""


@server.tool(task="required")
async def expense(ctx: Context, amount: float, purpose: str) -> str:
    """Submit an expense. Over 1,000 €, two managers have to approve it."""
    if amount <= 1000:
        return await ctx.step(pay, amount, purpose)
    try:
        approvals = await ctx.elicit(
            f"{ctx.principal.id} asks for {amount:,.2f} € for a {purpose}. Do you approve?",
            Approval,
            to="manager",
            approvals=2,
            key="approval",
            remind=timedelta(days=1),
            within=timedelta(days=3),
        )
    except Declined:
        return f"Rejected by {ctx.approved_by('approval')[-1].id}."
    except Unanswered:
        return "Withdrawn: the managers have not answered within three days."
    names = " and ".join(manager.id for manager in ctx.approved_by("approval"))
    comments = [approval.comment for approval in approvals if approval.comment]
    return " ".join([await ctx.step(pay, amount, purpose), f"Approved by {names}.", *comments])


def pay(amount: float, purpose: str) -> str:
    """Pay an expense. It runs once, however often the task runs."""
    return f"Paid {amount:,.2f} € for a {purpose}."
