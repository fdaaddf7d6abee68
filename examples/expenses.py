"""The expenses of a small company: submitted, approved by a manager, imported by the thousand, and reported.

`antiphon run examples/expenses.py` serves it, and may be killed at any time. It needs Pillow. Ada and Bob
see their own expenses. Eve is a manager and sees all. Ada submits an expense with `antiphon call URL submit
day=2026-11-02 category=office amount=1240 purpose=laptop --token ada-token`. Eve answers with `antiphon
inbox URL --token eve-token`.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from typing import Annotated, Literal

import PIL.Image
from PIL import ImageDraw
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from antiphon import Artifact, BearerTokens, Context, Declined, Failure, Image, Principal, Result, Server

LIMIT = 500
COLUMNS = "owner, day, category, amount, purpose, approval"
PEOPLE = {
    "ada-token": Principal("ada"),
    "bob-token": Principal("bob"),
    "eve-token": Principal("eve", scopes=frozenset({"manager"})),
}
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Category = Literal["travel", "food", "office"]

server = Server("expenses", authenticate=BearerTokens(PEOPLE), store="sqlite:///tasks.db")


class Expense(BaseModel):
    """What was bought, and when."""

    day: date
    category: Category
    amount: Amount
    purpose: str


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """Open the database for one transaction, because requests run side by side."""
    with closing(sqlite3.connect("expenses.db", timeout=30)) as connection, connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS expenses (id PRIMARY KEY, {COLUMNS})")
        connection.row_factory = sqlite3.Row
        yield connection


def book(id: str, owner: str, expenses: list[Expense], approval: str = "") -> None:
    """Book expenses, each once: if the process is killed here, the step runs again with the same id."""
    rows = [
        {"id": f"{id}-{number}", "owner": owner, "approval": approval, **expense.model_dump(mode="json")}
        for number, expense in enumerate(expenses)
    ]
    insert = (
        "INSERT OR IGNORE INTO expenses VALUES (:id, :owner, :day, :category, :amount, :purpose, :approval)"
    )
    with database() as connection:
        connection.executemany(insert, rows)


def visible(month: str, person: Principal) -> list[sqlite3.Row]:
    """Return the expenses of a month, such as 2026-11, that a person may see."""
    where = "day LIKE ? AND (owner = ? OR ?) ORDER BY day, rowid"
    values = (f"{month}%", person.id, "manager" in person.scopes)
    with database() as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM expenses WHERE {where}", values).fetchall()


@server.tool(task="optional", answer_within=1)
async def submit(day: date, category: Category, amount: Amount, purpose: str, ctx: Context) -> str:
    """Submit an expense. A manager has to approve more than 500 €."""
    expense = Expense(day=day, category=category, amount=amount, purpose=purpose)
    text, approval = f"{amount:,.2f} € for {purpose}", ""
    if amount > LIMIT:
        try:
            question = f"{ctx.principal.id} asks for {text}. Why do you approve?"
            reason = await ctx.elicit(question, str, to="manager", key="approval")
        except Declined:
            return f"{ctx.answered_by('approval').id} has rejected {text}."
        approval = f"{ctx.answered_by('approval').id}: {reason}"
    await ctx.step(book, str(ctx.uuid()), ctx.principal.id, [expense], approval)
    return f"Booked {text}."


@server.tool(task="required")
async def import_csv(table: str, ctx: Context) -> str:
    """Import expenses from CSV with the columns day, category, amount and purpose."""
    try:
        rows = TypeAdapter(list[Expense]).validate_python([*csv.DictReader(io.StringIO(table))])
    except ValidationError as error:
        raise Failure(f"Nothing was imported: {error}") from error
    if any(row.amount > LIMIT for row in rows):
        raise Failure(f"Nothing was imported: submit expenses of more than {LIMIT} € one by one.")
    for start in range(0, len(rows), 50):
        await ctx.step(book, str(ctx.uuid()), ctx.principal.id, rows[start : start + 50])
        await ctx.progress(min(start + 50, len(rows)), len(rows))
    return f"Imported {len(rows)} expenses."


@server.tool
def report(month: str, ctx: Context) -> Result:
    """Report a month: the totals by category, a chart of them, and a table to download."""
    totals: Counter[str] = Counter()
    for row in visible(month, ctx.principal):
        totals[row["category"]] += row["amount"]
    if not totals:
        raise Failure(f"There are no expenses in {month}.")
    return Result(
        [f"{month}: {totals.total():,.2f} €", Image.of(chart(totals))],
        data=totals,
        artifact=Artifact(expenses(month, ctx), title=f"Expenses of {month}", mime_type="text/csv"),
    )


def chart(totals: Counter[str]) -> PIL.Image.Image:
    """Draw a bar for each category, the longest first."""
    picture = PIL.Image.new("RGB", (400, 30 * len(totals)), "white")
    draw = ImageDraw.Draw(picture)
    for top, (category, total) in zip(range(0, picture.height, 30), totals.most_common(), strict=True):
        draw.text((10, top + 10), category, fill="black")
        draw.rectangle((80, top + 5, 80 + 300 * total / max(totals.values()), top + 25), fill="teal")
    return picture


@server.resource("expenses://{month}", mime_type="text/csv")
def expenses(month: str, ctx: Context) -> str:
    """List the expenses of a month: your own, or all of them if you are a manager."""
    text = io.StringIO()
    csv.writer(text).writerows([COLUMNS.split(", "), *visible(month, ctx.principal)])
    return text.getvalue()


@server.prompt
def review(month: str, ctx: Context) -> str:
    """Ask for a review of the expenses of a month."""
    return f"Which of these expenses look wrong, and why?\n\n{expenses(month, ctx)}"


@server.completion("review", "month")
@server.completion("expenses://{month}", "month")
def months(typed: str, ctx: Context) -> list[str]:
    """Suggest the months in which the caller sees expenses."""
    return sorted({row["day"][:7] for row in visible(typed, ctx.principal)})
